#include "dtensor/ops/binary.h"

#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "dtensor/ops/broadcast.h"
#include "dtensor/ops/cpu/binary.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/lasting_rules.h"
#include "dtensor/ops/view.h"
#include "dtensor/tensor/convert.h"
#include "dtensor/tensor/factory.h"

namespace dtensor {
namespace {

using cpu::BinaryOp;
using cpu::Side;

using LinearSets = InlineVector<Rule::InputSet, 3>;

LinearSets linear_sets(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd:
    case BinaryOp::kSub:
      return {{0, 1}};
    case BinaryOp::kMul:
      return {{0}, {1}};
    case BinaryOp::kDiv:
      return {{0}};
    default:
      return {};
  }
}

// Of operands that have one shape.
const Rule& equal_shapes_rule(BinaryOp op, int ndim) {
  static ops::LastingRules<cpu::kBinaryOps> rules(+[](size_t kind, int n) {
    const auto op = static_cast<BinaryOp>(kind);
    return Rule{.op = cpu::info_of(op).name,
                .letters = ops::pointwise_letters(2, n),
                .linear = linear_sets(op),
                .names = {"a", "b"}};
  });
  return rules.of(static_cast<size_t>(op), ndim);
}

DTensor run(BinaryOp op, const DTensor& a, const DTensor& b, const ops::MakeBackward& backward,
            CallSite site) {
  const char* name = cpu::info_of(op).name;
  ops::check_same_dtype(name, {a, b});
  cpu::check_dtype(op, a.dtype());
  const std::array<DTensor, 2> inputs = {a, b};
  const ops::Kernel kernel = [op](const ops::KernelInfo&, ops::Pieces in) {
    return ops::Tensors{cpu::binary(op, in[0], in[1])};
  };
  const auto run_by = [&](const Rule& rule, bool lasting) {
    return ops::run1({.rule = rule,
                      .kernel = kernel,
                      .backward = backward,
                      .site = site,
                      .twice = true,
                      .lasting = lasting},
                     inputs);
  };
  if (a.shape() == b.shape()) return run_by(equal_shapes_rule(op, a.ndim()), true);
  return run_by(ops::broadcast_rule(name, inputs, linear_sets(op), {"a", "b"}), false);
}

// What flows back through `gradient` to one of its operands a and b: z is g times what came.
using Curvature = DTensor (*)(const DTensor& z, const DTensor& a, const DTensor& b);
struct Curvatures {
  Curvature in_a = nullptr;  // none: 0 everywhere
  Curvature in_b = nullptr;
};
Curvatures curvatures_of(BinaryOp op, Side side);

// g times the slope on one side; of the common shape.
DTensor gradient(BinaryOp op, Side side, const DTensor& g, const DTensor& a, const DTensor& b) {
  const std::array<DTensor, 3> inputs = {g, a, b};
  const LinearSets linear = op == BinaryOp::kDiv ? LinearSets{{0}, {1}} : LinearSets{{0}};
  const Rule rule = ops::broadcast_rule(std::string(cpu::info_of(op).name) + "_backward", inputs,
                                        linear, {"g", "a", "b"});
  const ops::Kernel kernel = [op, side](const ops::KernelInfo&, ops::Pieces in) {
    return ops::Tensors{cpu::binary_backward(op, side, in[0], in[1], in[2])};
  };
  const auto backward = [op, side](std::span<const DTensor> in,
                                   std::span<const DTensor>) -> BackwardFn {
    const char* name = cpu::info_of(op).name;
    return
        [op, side,
         saved = std::array<Saved, 3>{Saved(in[0], name), Saved(in[1], name), Saved(in[2], name)},
         wants = std::array<bool, 3>{in[0].requires_grad(), in[1].requires_grad(),
                                     in[2].requires_grad()}](std::span<const DTensor> up) {
          const DTensor a = saved[1].value();
          const DTensor b = saved[2].value();
          const Curvatures f = curvatures_of(op, side);
          Grads grads(3);
          if (wants[0]) grads[0] = gradient(op, side, up[0], a, b);
          if (!wants[1] && !wants[2]) return grads;
          const DTensor z = mul(up[0], saved[0].value());
          if (wants[1] && f.in_a != nullptr) grads[1] = sum_to(f.in_a(z, a, b), a.shape());
          if (wants[2] && f.in_b != nullptr) grads[2] = sum_to(f.in_b(z, a, b), b.shape());
          return grads;
        };
  };
  return ops::run1({.rule = rule, .kernel = kernel, .backward = backward, .twice = true},
                   {g, a, b});
}

DTensor square_of(const DTensor& x) { return mul(x, x); }

Curvatures quotient_curvatures() {  // of -a / b^2
  return {.in_a = [](const DTensor& z, const DTensor& /*a*/,
                     const DTensor& b) { return mul(div(z, square_of(b)), -1.0); },
          .in_b = [](const DTensor& z, const DTensor& a,
                     const DTensor& b) { return mul(div(mul(z, a), mul(b, square_of(b))), 2.0); }};
}

// a^b: the slope in a is b a^(b-1), in b it is a^b log(a).
DTensor power_mixed(const DTensor& z, const DTensor& a, const DTensor& b) {
  const DTensor less = sub(b, 1.0);
  return add(mul(z, pow(a, less)), gradient(BinaryOp::kPow, Side::kB, mul(z, b), a, less));
}
Curvatures power_curvatures(Side side) {
  if (side == Side::kA) {
    return {.in_a =
                [](const DTensor& z, const DTensor& a, const DTensor& b) {
                  return mul(mul(z, mul(b, sub(b, 1.0))), pow(a, sub(b, 2.0)));
                },
            .in_b = power_mixed};
  }
  return {.in_a = power_mixed, .in_b = [](const DTensor& z, const DTensor& a, const DTensor& b) {
            // (a^(b/2) log(a))^2
            const DTensor half = mul(b, 0.5);
            return gradient(BinaryOp::kPow, Side::kB,
                            gradient(BinaryOp::kPow, Side::kB, z, a, half), a, half);
          }};
}

// atan(a / b), r = a^2 + b^2: b / r and -a / r.
DTensor angle_twice_ab(const DTensor& z, const DTensor& a, const DTensor& b) {
  const DTensor r = add(square_of(a), square_of(b));
  return mul(div(mul(z, mul(a, b)), square_of(r)), 2.0);
}
Curvatures angle_curvatures(Side side) {
  const Curvature mixed = [](const DTensor& z, const DTensor& a, const DTensor& b) {
    const DTensor aa = square_of(a);
    const DTensor bb = square_of(b);
    return div(mul(z, sub(aa, bb)), square_of(add(aa, bb)));
  };
  if (side == Side::kB) return {.in_a = mixed, .in_b = angle_twice_ab};
  return {.in_a = [](const DTensor& z, const DTensor& a,
                     const DTensor& b) { return mul(angle_twice_ab(z, a, b), -1.0); },
          .in_b = mixed};
}

Curvatures curvatures_of(BinaryOp op, Side side) {
  switch (op) {
    case BinaryOp::kDiv:
      return quotient_curvatures();
    case BinaryOp::kPow:
      return power_curvatures(side);
    case BinaryOp::kAtan2:
      return angle_curvatures(side);
    default:
      return {};
  }
}

// What the gradients of an op take from its inputs.
struct Wants {
  bool a = false;
  bool b = false;
  Shape to_a;
  Shape to_b;
  explicit Wants(std::span<const DTensor> in)
      : a(in[0].requires_grad()),
        b(in[1].requires_grad()),
        to_a(in[0].shape()),
        to_b(in[1].shape()) {}
};

using Gradient = DTensor (*)(BinaryOp, const DTensor& g, const DTensor& a, const DTensor& b);

DTensor slope_in_a(BinaryOp op, const DTensor& g, const DTensor& a, const DTensor& b) {
  return gradient(op, Side::kA, g, a, b);
}
DTensor slope_in_b(BinaryOp op, const DTensor& g, const DTensor& a, const DTensor& b) {
  return gradient(op, Side::kB, g, a, b);
}
DTensor whole(BinaryOp /*op*/, const DTensor& g, const DTensor& /*a*/, const DTensor& /*b*/) {
  return g;
}
DTensor quotient(BinaryOp /*op*/, const DTensor& g, const DTensor& /*a*/, const DTensor& b) {
  return div(g, b);
}

// Saves what the wanted gradients need.
ops::MakeBackward backward_of(BinaryOp op, Gradient da, Gradient db) {
  return [=](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    const char* name = cpu::info_of(op).name;
    const Wants wants(in);
    const bool needs_a = wants.b || (da != quotient && da != whole);
    return [=, a = needs_a ? Saved(in[0], name) : Saved(),
            b = Saved(in[1], name)](std::span<const DTensor> g) {
      Grads grads(2);
      const DTensor value = needs_a ? a.value() : DTensor();
      if (wants.a) grads[0] = sum_to(da(op, g[0], value, b.value()), wants.to_a);
      if (wants.b) grads[1] = sum_to(db(op, g[0], value, b.value()), wants.to_b);
      return grads;
    };
  };
}

ops::MakeBackward add_backward(double sign_of_b) {
  return [sign_of_b](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    return [sign_of_b, wants = Wants(in)](std::span<const DTensor> g) {
      Grads grads(2);
      if (wants.a) grads[0] = sum_to(g[0], wants.to_a);
      if (wants.b) grads[1] = sum_to(sign_of_b < 0 ? mul(g[0], -1.0) : g[0], wants.to_b);
      return grads;
    };
  };
}

// Only what is needed is saved.
ops::MakeBackward mul_backward() {
  return [](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    const Wants wants(in);
    return [wants, a = wants.b ? Saved(in[0], "mul") : Saved(),
            b = wants.a ? Saved(in[1], "mul") : Saved()](std::span<const DTensor> g) {
      Grads grads(2);
      if (wants.a) grads[0] = sum_to(mul(g[0], b.value()), wants.to_a);
      if (wants.b) grads[1] = sum_to(mul(g[0], a.value()), wants.to_b);
      return grads;
    };
  };
}

// ---- One operand a number
enum class Number : uint8_t { kFirst, kSecond };

struct NumberCall {
  BinaryOp op;
  Number where;
  double number;
  std::string_view name;  // of the rule
  bool linear = false;    // then the adjoint is the op itself
};

Tensor run_kernel(const NumberCall& c, const Tensor& x) {
  return c.where == Number::kFirst ? cpu::binary(c.op, c.number, x)
                                   : cpu::binary(c.op, x, c.number);
}

// z times the slope of the slope; undefined where that is 0 everywhere.
DTensor number_curvature(const NumberCall& c, const DTensor& z, const DTensor& x) {
  const double n = c.number;
  if (c.op == BinaryOp::kDiv) return mul(div(z, mul(x, square_of(x))), 2.0 * n);
  if (c.op != BinaryOp::kPow) return {};
  if (c.where == Number::kFirst) {
    if (n == 0.0) return {};
    return mul(mul(z, pow(n, x)), std::log(n) * std::log(n));
  }
  if (n == 0.0 || n == 1.0) return {};
  return mul(n == 2.0 ? z : mul(z, pow(x, n - 2.0)), n * (n - 1.0));
}

DTensor number_gradient(const NumberCall& c, const DTensor& g, const DTensor& x) {
  const std::string l = ops::letters_of(x.ndim());
  const Rule rule{.op = std::string(c.name) + "_backward",
                  .letters = l + "," + l + "->" + l,
                  .linear = {{0}},
                  .names = {"g", "x"}};
  const ops::Kernel kernel = [c](const ops::KernelInfo&, ops::Pieces in) {
    const Tensor number = Tensor::full({}, c.number, cpu::computed_in(in[1].dtype()));
    const bool first = c.where == Number::kFirst;
    return ops::Tensors{cpu::binary_backward(c.op, first ? Side::kB : Side::kA, in[0],
                                             first ? number : in[1], first ? in[1] : number)};
  };
  const auto backward = [c](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    return [c, g = Saved(in[0], c.name), x = Saved(in[1], c.name), wants_g = in[0].requires_grad(),
            wants_x = in[1].requires_grad()](std::span<const DTensor> up) {
      Grads grads(2);
      if (wants_g) grads[0] = number_gradient(c, up[0], x.value());
      if (wants_x) grads[1] = number_curvature(c, mul(up[0], g.value()), x.value());
      return grads;
    };
  };
  return ops::run1({.rule = rule, .kernel = kernel, .backward = backward, .twice = true}, {g, x});
}

// The parts of a P(sum) that hold -0.0 would become NaN.
bool takes_parts(const NumberCall& c, DType dtype) {
  const bool is_f32 = cpu::computed_in(dtype) == DType::kFloat32;
  const double number = is_f32 ? internal::convert<float>(c.number) : c.number;
  return c.linear && !(c.op == BinaryOp::kDiv ? number == 0 : std::isinf(number));
}

// May the result be a number that x's dtype does not hold?
void check_result(const NumberCall& c, const DTensor& x) {
  const bool counts = c.op == BinaryOp::kRemainder ||
                      (c.op == BinaryOp::kMaximum && c.number > 0) ||
                      (c.op == BinaryOp::kMinimum && c.number < 0);
  if (counts) check_range(c.name, x.dtype(), c.number);
}

DTensor run_number(const NumberCall& c, const DTensor& x, CallSite site) {
  ops::check_number(c.name, x, c.number);
  cpu::check_dtype(c.op, x.dtype());
  check_result(c, x);
  const Rule rule = ops::pointwise_rule(c.name, x, takes_parts(c, x.dtype()));
  const ops::Kernel kernel = [c](const ops::KernelInfo&, ops::Pieces in) {
    return ops::Tensors{run_kernel(c, in[0])};
  };
  const auto backward = [c](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    if (c.linear) {
      return [c](std::span<const DTensor> g) { return Grads{run_number(c, g[0], {})}; };
    }
    return [c, x = Saved(in[0], c.name)](std::span<const DTensor> g) {
      return Grads{number_gradient(c, g[0], x.value())};
    };
  };
  return ops::run1(
      {.rule = rule, .kernel = kernel, .backward = backward, .site = site, .twice = true}, {x});
}

// A sum with a number, which is an operand: it counts once beside a P(sum). Where x is f16 or bf16
// it has the type computed in, so that only the result is rounded.
DTensor run_sum(BinaryOp op, const DTensor& x, Number where, double number, CallSite site) {
  const char* name = cpu::info_of(op).name;
  ops::check_number(name, x, number);
  const bool first = where == Number::kFirst;
  const auto backward = add_backward(op == BinaryOp::kSub ? -1.0 : 1.0);
  const DType computed = cpu::computed_in(x.dtype());
  if (!is_floating(x.dtype()) || computed == x.dtype()) {
    const DTensor scalar = ops::scalar_like(name, x, number);
    return first ? run(op, scalar, x, backward, site) : run(op, x, scalar, backward, site);
  }
  const DTensor scalar(Tensor::full({}, number, computed));
  const std::array<DTensor, 2> inputs = {first ? scalar : x, first ? x : scalar};
  const ops::Kernel kernel = [op, first](const ops::KernelInfo&, ops::Pieces in) {
    return ops::Tensors{first ? cpu::binary(op, static_cast<double>(*in[0].data<float>()), in[1])
                              : cpu::binary(op, in[0], static_cast<double>(*in[1].data<float>()))};
  };
  const Rule rule = ops::broadcast_rule(name, inputs, linear_sets(op), {"a", "b"});
  return ops::run1({.rule = rule,
                    .kernel = kernel,
                    .backward = backward,
                    .dtype = x.dtype(),
                    .site = site,
                    .twice = true},
                   inputs);
}

}  // namespace

DTensor add(const DTensor& a, const DTensor& b, CallSite site) {
  return run(BinaryOp::kAdd, a, b, add_backward(1.0), site);
}
DTensor add(const DTensor& a, double b, CallSite site) {
  return run_sum(BinaryOp::kAdd, a, Number::kSecond, b, site);
}
DTensor sub(const DTensor& a, const DTensor& b, CallSite site) {
  return run(BinaryOp::kSub, a, b, add_backward(-1.0), site);
}
DTensor sub(const DTensor& a, double b, CallSite site) {
  return run_sum(BinaryOp::kSub, a, Number::kSecond, b, site);
}
DTensor sub(double a, const DTensor& b, CallSite site) {
  return run_sum(BinaryOp::kSub, b, Number::kFirst, a, site);
}
DTensor lerp(const DTensor& a, const DTensor& b, double weight, CallSite site) {
  const DTensor of_a = mul(a, 1 - weight, site);  // the order of ops is not the compiler's choice
  return add(of_a, mul(b, weight, site), site);
}

DTensor mul(const DTensor& a, const DTensor& b, CallSite site) {
  return run(BinaryOp::kMul, a, b, mul_backward(), site);
}
DTensor mul(const DTensor& a, double b, CallSite site) {
  return run_number({BinaryOp::kMul, Number::kSecond, b, "scale", true}, a, site);
}
DTensor addcmul(const DTensor& a, const DTensor& b, const DTensor& c, double factor,
                CallSite site) {
  const DTensor product = mul(b, c, site);
  return add(a, factor == 1.0 ? product : mul(product, factor, site), site);
}
DTensor div(const DTensor& a, const DTensor& b, CallSite site) {
  const ops::MakeBackward backward = backward_of(BinaryOp::kDiv, quotient, slope_in_b);
  return run(BinaryOp::kDiv, a, b, backward, site);
}
DTensor div(const DTensor& a, double b, CallSite site) {
  return run_number({BinaryOp::kDiv, Number::kSecond, b, "div", true}, a, site);
}
DTensor div(double a, const DTensor& b, CallSite site) {
  return run_number({BinaryOp::kDiv, Number::kFirst, a, "div_number"}, b, site);
}

DTensor pow(const DTensor& a, const DTensor& b, CallSite site) {
  const ops::MakeBackward backward = backward_of(BinaryOp::kPow, slope_in_a, slope_in_b);
  return run(BinaryOp::kPow, a, b, backward, site);
}
DTensor pow(const DTensor& a, double b, CallSite site) {
  return run_number({BinaryOp::kPow, Number::kSecond, b, "pow"}, a, site);
}
DTensor pow(double a, const DTensor& b, CallSite site) {
  return run_number({BinaryOp::kPow, Number::kFirst, a, "pow_number"}, b, site);
}
DTensor atan2(const DTensor& a, const DTensor& b, CallSite site) {
  const ops::MakeBackward backward = backward_of(BinaryOp::kAtan2, slope_in_a, slope_in_b);
  return run(BinaryOp::kAtan2, a, b, backward, site);
}

DTensor maximum(const DTensor& a, const DTensor& b, CallSite site) {
  const ops::MakeBackward backward = backward_of(BinaryOp::kMaximum, slope_in_a, slope_in_b);
  return run(BinaryOp::kMaximum, a, b, backward, site);
}
DTensor maximum(const DTensor& a, double b, CallSite site) {
  return run_number({BinaryOp::kMaximum, Number::kSecond, b, "maximum"}, a, site);
}
DTensor minimum(const DTensor& a, const DTensor& b, CallSite site) {
  const ops::MakeBackward backward = backward_of(BinaryOp::kMinimum, slope_in_a, slope_in_b);
  return run(BinaryOp::kMinimum, a, b, backward, site);
}
DTensor minimum(const DTensor& a, double b, CallSite site) {
  return run_number({BinaryOp::kMinimum, Number::kSecond, b, "minimum"}, a, site);
}

DTensor remainder(const DTensor& a, const DTensor& b, CallSite site) {
  const ops::MakeBackward backward = backward_of(BinaryOp::kRemainder, whole, slope_in_b);
  return run(BinaryOp::kRemainder, a, b, backward, site);
}
DTensor remainder(const DTensor& a, double b, CallSite site) {
  if (a.defined() && !is_floating(a.dtype()) && b == 0) {
    throw ArgumentError("remainder: b is 0");
  }
  return run_number({BinaryOp::kRemainder, Number::kSecond, b, "remainder"}, a, site);
}

}  // namespace dtensor
