#include "dtensor/ops/silu_mul.h"

#include <span>
#include <string>

#include "dtensor/ops/binary.h"
#include "dtensor/ops/cpu/elementwise.h"
#include "dtensor/ops/cpu/half.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/unary.h"

namespace dtensor {
namespace {

cpu::SiluMulGrads gradients_of(ops::Pieces in) {
  return cpu::silu_mul_backward(cpu::f16_as_f32(in[0]), cpu::f16_as_f32(in[1]),
                                cpu::f16_as_f32(in[2]));
}

// Made of ops that have gradients themselves where it is recorded. Both gradients in one pass. A
// Partial b makes only da Partial, which one rule cannot say of two outputs: then each is an op of
// its own.
std::vector<DTensor> silu_mul_gradients(const DTensor& g, const DTensor& a, const DTensor& b) {
  if (grad_enabled()) {
    const DTensor s = sigmoid(a);
    const DTensor slope = mul(s, add(mul(a, sub(1.0, s)), 1.0));
    return {mul(mul(g, b), slope), mul(g, mul(a, s))};
  }
  const std::string l = ops::letters_of(a.ndim());
  const std::string in = l + "," + l + "," + l + "->" + l;
  if (!b.spec().has_partial()) {
    const Rule rule{.op = "silu_mul_backward",
                    .letters = in + "," + l,
                    .linear = {{0}},
                    .names = {"g", "a", "b"}};
    const ops::Kernel kernel = [](const ops::KernelInfo&, ops::Pieces in) {
      const cpu::SiluMulGrads grads = gradients_of(in);
      return ops::Tensors{grads.da.to(in[0].dtype()), grads.db.to(in[0].dtype())};
    };
    return ops::run({.rule = rule, .kernel = kernel}, Grads{g, a, b});
  }
  const Rule rule{
      .op = "silu_mul_da", .letters = in, .linear = {{0}, {2}}, .names = {"g", "a", "b"}};
  const ops::Kernel kernel = [](const ops::KernelInfo&, ops::Pieces in) {
    return ops::Tensors{gradients_of(in).da.to(in[0].dtype())};
  };
  return {ops::run1({.rule = rule, .kernel = kernel}, {g, a, b}), mul(g, silu(a))};
}

}  // namespace

DTensor silu_mul(const DTensor& a, const DTensor& b, CallSite site) {
  ops::check_same_dtype("silu_mul", {a, b});
  ops::check_floating("silu_mul", a);
  const std::string l = ops::letters_of(a.ndim());
  const Rule rule{
      .op = "silu_mul", .letters = l + "," + l + "->" + l, .linear = {{1}}, .names = {"a", "b"}};
  const ops::Kernel kernel = [](const ops::KernelInfo&, ops::Pieces in) {
    const Tensor y = cpu::silu_mul(cpu::f16_as_f32(in[0]), cpu::f16_as_f32(in[1]));
    return ops::Tensors{y.to(in[0].dtype())};
  };
  const auto backward = [](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    return
        [a = Saved(in[0], "silu_mul"), b = Saved(in[1], "silu_mul")](std::span<const DTensor> g) {
          return silu_mul_gradients(g[0], a.value(), b.value());
        };
  };
  return ops::run1(
      {.rule = rule, .kernel = kernel, .backward = backward, .site = site, .twice = true}, {a, b});
}

}  // namespace dtensor
