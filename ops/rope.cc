#include "dtensor/ops/rope.h"

#include <string>

#include "dtensor/ops/cpu/rope.h"
#include "dtensor/ops/dispatch.h"

namespace dtensor {
namespace {

Rule rope_rule(std::string_view op, int ndim) {
  const std::string x = "bt" + ops::letters_of(ndim - 3, 'g') + "d";
  return Rule{.op = std::string(op),
              .letters = x + ",td,td->" + x,
              .uncut = "d",
              .linear = {{0}, {1, 2}},
              .names = {op == "rope" ? "x" : "g", "cos", "sin"}};
}

// One turns back what the other turned: each is the other's adjoint.
DTensor rotate(bool forward, const DTensor& x, const DTensor& cos, const DTensor& sin,
               CallSite site) {
  const Rule rule = rope_rule(forward ? "rope" : "rope_backward", x.ndim());
  const ops::Kernel kernel = [forward](const ops::KernelInfo&, ops::Pieces in) {
    return ops::Tensors{(forward ? cpu::rope : cpu::rope_backward)(in[0], in[1], in[2])};
  };
  const auto backward = [forward](std::span<const DTensor> in,
                                  std::span<const DTensor>) -> BackwardFn {
    return [forward, cos = Saved(in[1], "rope"),
            sin = Saved(in[2], "rope")](std::span<const DTensor> g) {
      return Grads{rotate(!forward, g[0], cos.value(), sin.value(), {}), DTensor(), DTensor()};
    };
  };
  return ops::run1(
      {.rule = rule, .kernel = kernel, .backward = backward, .site = site, .twice = true},
      {x, cos, sin});
}

}  // namespace

DTensor rope(const DTensor& x, const DTensor& cos, const DTensor& sin, CallSite site) {
  ops::check_floating("rope", x);
  ops::check_same_dtype("rope", {cos, sin});
  if (x.ndim() < 3) {
    throw ArgumentError("rope takes x [b,t,...,d], got " + to_string(x.shape()));
  }
  if (cos.requires_grad() || sin.requires_grad()) {
    throw ArgumentError("rope: the tables get no gradient; pass cos.detach() and sin.detach()");
  }
  return rotate(true, x, cos, sin, site);
}

}  // namespace dtensor
