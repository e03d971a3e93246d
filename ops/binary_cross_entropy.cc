#include "dtensor/ops/binary_cross_entropy.h"

#include "dtensor/ops/binary.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/unary.h"

namespace dtensor {

DTensor binary_cross_entropy_with_logits(const DTensor& x, const DTensor& t,
                                         LossReduction reduction, CallSite site) {
  ops::check_same_dtype("binary_cross_entropy_with_logits", {x, t});
  ops::check_floating("binary_cross_entropy_with_logits", x);
  const DTensor whole = softplus(x, 1.0, site);
  const DTensor losses = sub(whole, mul(x, t, site), site);
  if (reduction == LossReduction::kNone) return losses;
  return reduction == LossReduction::kSum ? sum(losses, {}, KeepDims::kNo, site)
                                          : mean(losses, {}, KeepDims::kNo, site);
}

}  // namespace dtensor
