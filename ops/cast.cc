#include "dtensor/ops/cast.h"

#include <vector>

#include "dtensor/ops/broadcast.h"
#include "dtensor/ops/dispatch.h"

namespace dtensor {

DTensor cast(const DTensor& a, DType dtype, CallSite site) {
  ops::check_same_dtype("cast", {a});
  if (a.dtype() == dtype) return a;
  const bool linear = is_floating(a.dtype()) && is_floating(dtype);
  const Rule rule = ops::pointwise_rule(linear ? "cast" : "cast_to_integer", a, linear);
  const ops::Kernel kernel = [dtype](const ops::KernelInfo&, ops::Pieces in) {
    return ops::Tensors{in[0].to(dtype)};
  };
  ops::MakeBackward backward;
  if (linear) {
    backward = [](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
      return [from = in[0].dtype()](std::span<const DTensor> g) { return Grads{cast(g[0], from)}; };
    };
  }
  return ops::run1({.rule = rule,
                    .kernel = kernel,
                    .backward = backward,
                    .dtype = dtype,
                    .site = site,
                    .twice = true},
                   {a});
}

}  // namespace dtensor
