#include "dtensor/ops/binary_cross_entropy.h"

#include "dtensor/base/dtype.h"
#include "dtensor/ops/binary.h"
#include "dtensor/ops/cast.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/unary.h"

namespace dtensor {

DTensor binary_cross_entropy_with_logits(const DTensor& x, const DTensor& t,
                                         LossReduction reduction, CallSite site) {
  ops::check_same_dtype("binary_cross_entropy_with_logits", {x, t});
  ops::check_floating("binary_cross_entropy_with_logits", x);
  // t softplus(-x) + (1 - t) softplus(x): nothing cancels, also where a loss is small.
  const bool halves = size_of(x.dtype()) == 2;
  const DTensor logits = halves ? cast(x, DType::kFloat32, site) : x;
  const DTensor labels = halves ? cast(t, DType::kFloat32, site) : t;
  const DTensor of_yes = mul(labels, softplus(neg(logits, site), 1.0, site), site);
  const DTensor of_no = mul(sub(1.0, labels, site), softplus(logits, 1.0, site), site);
  DTensor loss = add(of_yes, of_no, site);
  if (reduction == LossReduction::kSum) loss = sum(loss, {}, KeepDims::kNo, site);
  if (reduction == LossReduction::kMean) loss = mean(loss, {}, KeepDims::kNo, site);
  return cast(loss, x.dtype(), site);
}

}  // namespace dtensor
