#include "dtensor/ops/elementwise.h"

#include <cmath>
#include <string>
#include <utility>

#include "dtensor/ops/cpu/elementwise.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"

namespace dtensor {
namespace {

using Unary = Tensor (*)(const Tensor&);
using Binary = Tensor (*)(const Tensor&, const Tensor&);

ops::Kernel kernel_of(Binary f) {
  return [f](const ops::KernelInfo&, std::span<const Tensor> in) {
    return std::vector<Tensor>{f(in[0], in[1])};
  };
}

// Letters of two operands aligned from the right. A dim of size 1 that is repeated is a letter of
// its own, which may not be cut.
Rule broadcast_rule(std::string_view op, const DTensor& a, const DTensor& b,
                    std::vector<std::vector<int>> linear) {
  const Shape shape = cpu::broadcast_shape(a.shape(), b.shape());
  Rule rule{.op = std::string(op), .letters = {}, .linear = std::move(linear), .names = {"a", "b"}};
  const std::string out = ops::letters_of(shape.ndim());
  const auto letters = [&](const DTensor& x) {
    std::string mine = out.substr(static_cast<size_t>(shape.ndim() - x.ndim()));
    for (int d = 0; d < x.ndim(); ++d) {
      if (x.size(d) == shape[shape.ndim() - x.ndim() + d]) continue;
      char& letter = mine[static_cast<size_t>(d)];
      letter = static_cast<char>(letter - 'a' + 'A');
      rule.uncut += letter;
    }
    return mine;
  };
  rule.letters = letters(a) + ",";
  rule.letters += letters(b) + "->" + out;
  return rule;
}

// The adjoint of broadcasting: sums over the dims that were repeated.
DTensor sum_to(const DTensor& g, const Shape& shape) {
  std::vector<int> dims;
  for (int d = 0; d < g.ndim(); ++d) {
    const int mine = d - (g.ndim() - shape.ndim());
    if (mine < 0 || shape[mine] != g.size(d)) dims.push_back(d);
  }
  if (dims.empty()) return g;
  return reshape(sum(g, dims), shape);
}

void check_operands(std::string_view op, const DTensor& a, const DTensor& b) {
  ops::check_same_dtype(op, {a, b});
}

// A number as a scalar of a's dtype.
DTensor scalar_like(std::string_view op, const DTensor& a, double value) {
  if (!a.defined()) throw ArgumentError(std::string(op) + ": an operand is an empty handle");
  if (!is_floating(a.dtype()) && value != std::floor(value)) {
    throw ArgumentError(std::string(op) + ": " + std::to_string(value) + " to a tensor of " +
                        std::string(name_of(a.dtype())) + "; cast it first");
  }
  return DTensor(Tensor::full({}, value, a.dtype()));
}

// An op of one operand. `backward` takes (g, saved), where saved is the input or the output.
enum class Saves { kNothing, kInput, kOutput };
struct UnaryOp {
  std::string_view name;
  Unary kernel;
  bool linear = false;
  Saves saves = Saves::kInput;
  DTensor (*backward)(const DTensor& g, const DTensor& saved) = nullptr;
};

DTensor run_unary(const UnaryOp& op, const DTensor& a, CallSite site) {
  const std::string l = ops::letters_of(a.ndim());
  Rule rule{.op = std::string(op.name), .letters = l + "->" + l};
  if (op.linear) rule.linear = {{0}};
  const auto backward = [&op](std::span<const DTensor> in,
                              std::span<const DTensor> out) -> BackwardFn {
    const Saved saved = op.saves == Saves::kNothing ? Saved()
                        : op.saves == Saves::kInput ? Saved(in[0], op.name)
                                                    : Saved(out[0].detach(), op.name);
    return [f = op.backward, saves = op.saves, saved](std::span<const DTensor> g) {
      return std::vector<DTensor>{f(g[0], saves == Saves::kNothing ? DTensor() : saved.value())};
    };
  };
  const ops::Kernel kernel = [f = op.kernel](const ops::KernelInfo&, std::span<const Tensor> in) {
    return std::vector<Tensor>{f(in[0])};
  };
  return ops::run1({.rule = rule, .kernel = kernel, .backward = backward, .site = site}, {a});
}

// f(g, x) for g and x of one shape, linear in g: the gradient of an elementwise op.
DTensor elementwise_gradient(std::string_view op, Binary f, const DTensor& g, const DTensor& x) {
  const std::string l = ops::letters_of(x.ndim());
  const Rule rule{.op = std::string(op),
                  .letters = l + "," + l + "->" + l,
                  .linear = {{0}},
                  .names = {"g", "x"}};
  return ops::run1({.rule = rule, .kernel = kernel_of(f)}, {g, x});
}

ops::MakeBackward add_backward(double sign_of_b) {
  return [sign_of_b](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    return [sign_of_b, a = in[0].requires_grad(), b = in[1].requires_grad(), to_a = in[0].shape(),
            to_b = in[1].shape()](std::span<const DTensor> g) {
      std::vector<DTensor> grads(2);
      if (a) grads[0] = sum_to(g[0], to_a);
      if (b) grads[1] = sum_to(sign_of_b < 0 ? neg(g[0]) : g[0], to_b);
      return grads;
    };
  };
}

ops::MakeBackward mul_backward() {
  return [](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    const bool wants_a = in[0].requires_grad();
    const bool wants_b = in[1].requires_grad();
    return
        [a = wants_b ? Saved(in[0], "mul") : Saved(), b = wants_a ? Saved(in[1], "mul") : Saved(),
         wants_a, wants_b, to_a = in[0].shape(), to_b = in[1].shape()](std::span<const DTensor> g) {
          std::vector<DTensor> grads(2);
          if (wants_a) grads[0] = sum_to(mul(g[0], b.value()), to_a);
          if (wants_b) grads[1] = sum_to(mul(g[0], a.value()), to_b);
          return grads;
        };
  };
}

}  // namespace

DTensor add(const DTensor& a, const DTensor& b, CallSite site) {
  check_operands("add", a, b);
  const Rule rule = broadcast_rule("add", a, b, {{0, 1}});
  return ops::run1(
      {.rule = rule, .kernel = kernel_of(cpu::add), .backward = add_backward(1.0), .site = site},
      {a, b});
}

DTensor sub(const DTensor& a, const DTensor& b, CallSite site) {
  check_operands("sub", a, b);
  const Rule rule = broadcast_rule("sub", a, b, {{0, 1}});
  return ops::run1(
      {.rule = rule, .kernel = kernel_of(cpu::sub), .backward = add_backward(-1.0), .site = site},
      {a, b});
}

DTensor mul(const DTensor& a, const DTensor& b, CallSite site) {
  check_operands("mul", a, b);
  const Rule rule = broadcast_rule("mul", a, b, {{0}, {1}});
  return ops::run1(
      {.rule = rule, .kernel = kernel_of(cpu::mul), .backward = mul_backward(), .site = site},
      {a, b});
}

DTensor add(const DTensor& a, double b, CallSite site) {
  return add(a, scalar_like("add", a, b), site);
}

DTensor sub(const DTensor& a, double b, CallSite site) {
  return sub(a, scalar_like("sub", a, b), site);
}

DTensor mul(const DTensor& a, double b, CallSite site) {
  scalar_like("mul", a, b);
  const std::string l = ops::letters_of(a.ndim());
  const Rule rule{.op = "scale", .letters = l + "->" + l, .linear = {{0}}};
  const ops::Kernel kernel = [b](const ops::KernelInfo&, std::span<const Tensor> in) {
    return std::vector<Tensor>{cpu::scale(in[0], b)};
  };
  const auto backward = [b](std::span<const DTensor>, std::span<const DTensor>) -> BackwardFn {
    return [b](std::span<const DTensor> g) { return std::vector<DTensor>{mul(g[0], b)}; };
  };
  return ops::run1({.rule = rule, .kernel = kernel, .backward = backward, .site = site}, {a});
}

DTensor neg(const DTensor& a, CallSite site) {
  static constexpr UnaryOp kOp{"neg", cpu::neg, true, Saves::kNothing,
                               [](const DTensor& g, const DTensor&) { return neg(g); }};
  ops::check_same_dtype("neg", {a});
  return run_unary(kOp, a, site);
}

DTensor exp(const DTensor& a, CallSite site) {
  static constexpr UnaryOp kOp{"exp", cpu::exp, false, Saves::kOutput,
                               [](const DTensor& g, const DTensor& y) { return mul(g, y); }};
  ops::check_floating("exp", a);
  return run_unary(kOp, a, site);
}

DTensor relu(const DTensor& a, CallSite site) {
  static constexpr UnaryOp kOp{
      "relu", cpu::relu, false, Saves::kInput, [](const DTensor& g, const DTensor& x) {
        return elementwise_gradient("relu_backward", cpu::relu_backward, g, x);
      }};
  ops::check_floating("relu", a);
  return run_unary(kOp, a, site);
}

DTensor silu(const DTensor& a, CallSite site) {
  static constexpr UnaryOp kOp{
      "silu", cpu::silu, false, Saves::kInput, [](const DTensor& g, const DTensor& x) {
        return elementwise_gradient("silu_backward", cpu::silu_backward, g, x);
      }};
  ops::check_floating("silu", a);
  return run_unary(kOp, a, site);
}

namespace {

// Both gradients in one pass. A Partial b makes only da Partial, which one rule cannot say of two
// outputs: then each is an op of its own.
std::vector<DTensor> silu_mul_gradients(const DTensor& g, const DTensor& a, const DTensor& b) {
  const std::string l = ops::letters_of(a.ndim());
  const std::string in = l + "," + l + "," + l + "->" + l;
  if (!b.spec().has_partial()) {
    const Rule rule{.op = "silu_mul_backward",
                    .letters = in + "," + l,
                    .linear = {{0}},
                    .names = {"g", "a", "b"}};
    const ops::Kernel kernel = [](const ops::KernelInfo&, std::span<const Tensor> in) {
      cpu::SiluMulGrads grads = cpu::silu_mul_backward(in[0], in[1], in[2]);
      return std::vector<Tensor>{std::move(grads.da), std::move(grads.db)};
    };
    return ops::run({.rule = rule, .kernel = kernel}, std::vector<DTensor>{g, a, b});
  }
  const Rule rule{
      .op = "silu_mul_da", .letters = in, .linear = {{0}, {2}}, .names = {"g", "a", "b"}};
  const ops::Kernel kernel = [](const ops::KernelInfo&, std::span<const Tensor> in) {
    return std::vector<Tensor>{cpu::silu_mul_backward(in[0], in[1], in[2]).da};
  };
  return {ops::run1({.rule = rule, .kernel = kernel}, {g, a, b}), mul(g, silu(a))};
}

}  // namespace

DTensor silu_mul(const DTensor& a, const DTensor& b, CallSite site) {
  check_operands("silu_mul", a, b);
  ops::check_floating("silu_mul", a);
  const std::string l = ops::letters_of(a.ndim());
  const Rule rule{
      .op = "silu_mul", .letters = l + "," + l + "->" + l, .linear = {{1}}, .names = {"a", "b"}};
  const auto backward = [](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    return
        [a = Saved(in[0], "silu_mul"), b = Saved(in[1], "silu_mul")](std::span<const DTensor> g) {
          return silu_mul_gradients(g[0], a.value(), b.value());
        };
  };
  return ops::run1(
      {.rule = rule, .kernel = kernel_of(cpu::silu_mul), .backward = backward, .site = site},
      {a, b});
}

DTensor cast(const DTensor& a, DType dtype, CallSite site) {
  ops::check_same_dtype("cast", {a});
  if (a.dtype() == dtype) return a;
  const bool linear = is_floating(a.dtype()) && is_floating(dtype);
  const std::string l = ops::letters_of(a.ndim());
  Rule rule{.op = linear ? "cast" : "cast_to_integer", .letters = l + "->" + l};
  if (linear) rule.linear = {{0}};
  const ops::Kernel kernel = [dtype](const ops::KernelInfo&, std::span<const Tensor> in) {
    return std::vector<Tensor>{in[0].to(dtype)};
  };
  ops::MakeBackward backward;
  if (linear) {
    backward = [](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
      return [from = in[0].dtype()](std::span<const DTensor> g) {
        return std::vector<DTensor>{cast(g[0], from)};
      };
    };
  }
  return ops::run1(
      {.rule = rule, .kernel = kernel, .backward = backward, .dtype = dtype, .site = site}, {a});
}

}  // namespace dtensor
