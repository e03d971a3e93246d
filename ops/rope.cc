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

DTensor gradient(const DTensor& g, const DTensor& cos, const DTensor& sin) {
  const Rule rule = rope_rule("rope_backward", g.ndim());
  const ops::Kernel kernel = [](const ops::KernelInfo&, ops::Pieces in) {
    return ops::Tensors{cpu::rope_backward(in[0], in[1], in[2])};
  };
  return ops::run1({.rule = rule, .kernel = kernel}, {g, cos, sin});
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
  const Rule rule = rope_rule("rope", x.ndim());
  const ops::Kernel kernel = [](const ops::KernelInfo&, ops::Pieces in) {
    return ops::Tensors{cpu::rope(in[0], in[1], in[2])};
  };
  const auto backward = [](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    return [cos = Saved(in[1], "rope"), sin = Saved(in[2], "rope")](std::span<const DTensor> g) {
      return Grads{gradient(g[0], cos.value(), sin.value()), DTensor(), DTensor()};
    };
  };
  return ops::run1({.rule = rule, .kernel = kernel, .backward = backward, .site = site},
                   {x, cos, sin});
}

}  // namespace dtensor
