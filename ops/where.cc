#include "dtensor/ops/where.h"

#include <array>
#include <vector>

#include "dtensor/ops/broadcast.h"
#include "dtensor/ops/cpu/binary.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/view.h"
#include "dtensor/tensor/factory.h"

namespace dtensor {

DTensor where(const DTensor& condition, const DTensor& a, const DTensor& b, CallSite site) {
  ops::check_same_dtype("where", {condition});
  ops::check_same_dtype("where", {a, b});
  const std::array<DTensor, 3> inputs = {condition, a, b};
  const Rule rule = ops::broadcast_rule("where", inputs, {{1, 2}}, {"condition", "a", "b"});
  const ops::Kernel kernel = [](const ops::KernelInfo&, ops::Pieces in) {
    return ops::Tensors{cpu::where(in[0], in[1], in[2])};
  };
  const auto backward = [](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    return [chosen = Saved(in[0], "where"), a = in[1].requires_grad(), b = in[2].requires_grad(),
            to_a = in[1].shape(), to_b = in[2].shape()](std::span<const DTensor> g) {
      std::vector<DTensor> grads(3);
      if (a) grads[1] = sum_to(where(chosen.value(), g[0], 0.0), to_a);
      if (b) grads[2] = sum_to(where(chosen.value(), 0.0, g[0]), to_b);
      return grads;
    };
  };
  return ops::run1({.rule = rule,
                    .kernel = kernel,
                    .backward = backward,
                    .dtype = a.dtype(),
                    .site = site,
                    .twice = true},
                   {condition, a, b});
}

namespace {

DTensor number_beside(const DTensor& a, double number) {
  ops::check_number("where", a, number);
  check_range("where", a.dtype(), number);
  return ops::scalar_like("where", a, number);
}

}  // namespace

DTensor where(const DTensor& condition, const DTensor& a, double b, CallSite site) {
  return where(condition, a, number_beside(a, b), site);
}
DTensor where(const DTensor& condition, double a, const DTensor& b, CallSite site) {
  return where(condition, number_beside(b, a), b, site);
}

DTensor masked_fill(const DTensor& x, const DTensor& mask, double number, CallSite site) {
  return where(mask, number, x, site);
}

}  // namespace dtensor
