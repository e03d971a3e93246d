#include "dtensor/ops/mse_loss.h"

#include "dtensor/ops/binary.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/unary.h"

namespace dtensor {

DTensor mse_loss(const DTensor& a, const DTensor& b, LossReduction reduction, CallSite site) {
  ops::check_same_dtype("mse_loss", {a, b});
  ops::check_floating("mse_loss", a);
  const DTensor squares = square(sub(a, b, site), site);
  if (reduction == LossReduction::kNone) return squares;
  return reduction == LossReduction::kSum ? sum(squares, {}, KeepDims::kNo, site)
                                          : mean(squares, {}, KeepDims::kNo, site);
}

}  // namespace dtensor
