#include "dtensor/ops/unary.h"

#include <cmath>
#include <limits>
#include <string>

#include "dtensor/ops/binary.h"
#include "dtensor/ops/broadcast.h"
#include "dtensor/ops/cpu/unary.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/lasting_rules.h"
#include "dtensor/tensor/factory.h"

namespace dtensor {
namespace {

using cpu::Numbers;
using cpu::UnaryOp;
using cpu::UnarySaves;

DTensor run(UnaryOp op, const DTensor& a, const Numbers& numbers, CallSite site);

const Rule& rule_of(UnaryOp op, int ndim) {
  static ops::LastingRules<cpu::kUnaryOps> rules(+[](size_t kind, int n) {
    const cpu::UnaryInfo& info = cpu::info_of(static_cast<UnaryOp>(kind));
    Rule rule{.op = info.name, .letters = ops::pointwise_letters(1, n)};
    if (info.saves == UnarySaves::kNothing) rule.linear = {{0}};
    return rule;
  });
  return rules.of(static_cast<size_t>(op), ndim);
}

const Rule& backward_rule_of(UnaryOp op, int ndim) {
  static ops::LastingRules<cpu::kUnaryOps> rules(+[](size_t kind, int n) {
    const cpu::UnaryInfo& info = cpu::info_of(static_cast<UnaryOp>(kind));
    return Rule{.op = std::string(info.name) + "_backward",
                .letters = ops::pointwise_letters(2, n),
                .linear = {{0}},
                .names = {"g", info.saves == UnarySaves::kInput ? "x" : "y"}};
  });
  return rules.of(static_cast<size_t>(op), ndim);
}

// z times the slope of the slope, by what is saved; undefined where that is 0 everywhere.
DTensor curvature(UnaryOp op, const Numbers& numbers, const DTensor& z, const DTensor& x);

// g times the slope: linear in g.
DTensor gradient(UnaryOp op, const Numbers& numbers, const DTensor& g, const DTensor& saved) {
  const ops::Kernel kernel = [op, numbers](const ops::KernelInfo&, ops::Pieces in) {
    return ops::Tensors{cpu::unary_backward(op, in[0], in[1], numbers)};
  };
  const auto backward = [op, numbers](std::span<const DTensor> in,
                                      std::span<const DTensor>) -> BackwardFn {
    const char* name = cpu::info_of(op).name;
    return [op, numbers, g = Saved(in[0], name), x = Saved(in[1], name),
            wants_g = in[0].requires_grad(),
            wants_x = in[1].requires_grad()](std::span<const DTensor> up) {
      const DTensor saved = x.value();
      Grads grads(2);
      if (wants_g) grads[0] = gradient(op, numbers, up[0], saved);
      if (wants_x) grads[1] = curvature(op, numbers, mul(up[0], g.value()), saved);
      return grads;
    };
  };
  return ops::run1({.rule = backward_rule_of(op, g.ndim()),
                    .kernel = kernel,
                    .backward = backward,
                    .twice = true,
                    .lasting = true},
                   {g, saved});
}

// z phi(x), phi the standard normal density.
DTensor times_density(const DTensor& z, const DTensor& x) {
  return mul(mul(z, exp(mul(square(x), -0.5))), 0.5 * M_SQRT1_2 * M_2_SQRTPI);
}

// Of x / 2 (1 + tanh(u)), u = c (x + a x^3), with t = tanh(u):
// (1 - t^2) (u' + x u'' / 2 - x t u'^2).
DTensor gelu_tanh_curvature(const DTensor& z, const DTensor& x) {
  constexpr double kC = M_SQRT1_2 * M_2_SQRTPI;
  constexpr double kA = 0.044715;
  const DTensor squares = square(x);
  const DTensor t = tanh(mul(mul(x, add(mul(squares, kA), 1.0)), kC));
  const DTensor first = mul(add(mul(squares, 3 * kA), 1.0), kC);
  const DTensor bend = add(first, mul(squares, 3 * kA * kC));
  const DTensor turn = mul(mul(x, t), square(first));
  return mul(mul(z, sub(1.0, square(t))), sub(bend, turn));
}

DTensor curvature(UnaryOp op, const Numbers& numbers, const DTensor& z, const DTensor& x) {
  switch (op) {
    case UnaryOp::kSquare:
      return mul(z, 2.0);
    case UnaryOp::kExp:
    case UnaryOp::kExpm1:  // x is the output, as in all that have slopes by it
      return z;
    case UnaryOp::kLog:
      return neg(div(z, square(x)));
    case UnaryOp::kLog1p:
      return neg(div(z, square(add(x, 1.0))));
    case UnaryOp::kLog2:
      return div(div(z, square(x)), -M_LN2);
    case UnaryOp::kSqrt:
      return mul(div(z, square(x)), -0.5);
    case UnaryOp::kRsqrt:
      return mul(mul(z, square(x)), -1.5);
    case UnaryOp::kReciprocal:
    case UnaryOp::kTanh:
      return mul(mul(z, x), -2.0);
    case UnaryOp::kTan:
      return mul(mul(z, x), 2.0);
    case UnaryOp::kSin:
      return neg(mul(z, sin(x)));
    case UnaryOp::kCos:
      return neg(mul(z, cos(x)));
    case UnaryOp::kAtan:
      return mul(div(mul(z, x), square(add(square(x), 1.0))), -2.0);
    case UnaryOp::kSigmoid:
      return mul(z, sub(1.0, mul(x, 2.0)));
    case UnaryOp::kErf:
      return mul(mul(mul(z, x), exp(neg(square(x)))), -2.0 * M_2_SQRTPI);
    case UnaryOp::kElu: {
      const DTensor bent = mul(mul(z, exp(clamp(x, {.max = 0.0}))), numbers[0]);
      return sub(bent, gradient(UnaryOp::kRelu, {}, bent, x));
    }
    case UnaryOp::kSilu: {
      const DTensor s = sigmoid(x);
      const DTensor slope = mul(s, sub(1.0, s));
      return mul(mul(z, slope), add(mul(x, sub(1.0, mul(s, 2.0))), 2.0));
    }
    case UnaryOp::kGelu:
      return mul(times_density(z, x), sub(2.0, square(x)));
    case UnaryOp::kGeluTanh:
      return gelu_tanh_curvature(z, x);
    case UnaryOp::kSoftplus: {
      const DTensor s = sigmoid(mul(x, numbers[0]));
      return mul(mul(z, mul(s, sub(1.0, s))), numbers[0]);
    }
    default:  // straight between kinks
      return {};
  }
}

ops::MakeBackward backward_of(UnaryOp op, const Numbers& numbers) {
  switch (cpu::info_of(op).saves) {
    case UnarySaves::kNoGradient:
      return {};
    case UnarySaves::kNothing:
      return [op, numbers](std::span<const DTensor>, std::span<const DTensor>) -> BackwardFn {
        return
            [op, numbers](std::span<const DTensor> g) { return Grads{run(op, g[0], numbers, {})}; };
      };
    default:
      return
          [op, numbers](std::span<const DTensor> in, std::span<const DTensor> out) -> BackwardFn {
            const bool input = cpu::info_of(op).saves == UnarySaves::kInput;
            return [op, numbers,
                    saved = input ? Saved(in[0], cpu::info_of(op).name)
                                  : Saved::output(out[0], cpu::info_of(op).name)](
                       std::span<const DTensor> g) {
              return Grads{gradient(op, numbers, g[0], saved.value())};
            };
          };
  }
}

DTensor run(UnaryOp op, const DTensor& a, const Numbers& numbers, CallSite site) {
  const cpu::UnaryInfo& info = cpu::info_of(op);
  ops::check_same_dtype(info.name, {a});
  cpu::check_dtype(op, a.dtype());
  const ops::Kernel kernel = [op, numbers](const ops::KernelInfo&, ops::Pieces in) {
    return ops::Tensors{cpu::unary(op, in[0], numbers)};
  };
  return ops::run1({.rule = rule_of(op, a.ndim()),
                    .kernel = kernel,
                    .backward = backward_of(op, numbers),
                    .dtype = info.to_bool ? DType::kBool : a.dtype(),
                    .site = site,
                    .twice = true,
                    .lasting = true},
                   {a});
}

}  // namespace

DTensor neg(const DTensor& a, CallSite site) { return run(UnaryOp::kNeg, a, {}, site); }
DTensor abs(const DTensor& a, CallSite site) { return run(UnaryOp::kAbs, a, {}, site); }
DTensor square(const DTensor& a, CallSite site) { return run(UnaryOp::kSquare, a, {}, site); }
DTensor exp(const DTensor& a, CallSite site) { return run(UnaryOp::kExp, a, {}, site); }
DTensor expm1(const DTensor& a, CallSite site) { return run(UnaryOp::kExpm1, a, {}, site); }
DTensor log(const DTensor& a, CallSite site) { return run(UnaryOp::kLog, a, {}, site); }
DTensor log1p(const DTensor& a, CallSite site) { return run(UnaryOp::kLog1p, a, {}, site); }
DTensor log2(const DTensor& a, CallSite site) { return run(UnaryOp::kLog2, a, {}, site); }
DTensor sqrt(const DTensor& a, CallSite site) { return run(UnaryOp::kSqrt, a, {}, site); }
DTensor rsqrt(const DTensor& a, CallSite site) { return run(UnaryOp::kRsqrt, a, {}, site); }
DTensor reciprocal(const DTensor& a, CallSite site) {
  return run(UnaryOp::kReciprocal, a, {}, site);
}
DTensor sin(const DTensor& a, CallSite site) { return run(UnaryOp::kSin, a, {}, site); }
DTensor cos(const DTensor& a, CallSite site) { return run(UnaryOp::kCos, a, {}, site); }
DTensor tan(const DTensor& a, CallSite site) { return run(UnaryOp::kTan, a, {}, site); }
DTensor atan(const DTensor& a, CallSite site) { return run(UnaryOp::kAtan, a, {}, site); }
DTensor tanh(const DTensor& a, CallSite site) { return run(UnaryOp::kTanh, a, {}, site); }
DTensor sigmoid(const DTensor& a, CallSite site) { return run(UnaryOp::kSigmoid, a, {}, site); }
DTensor erf(const DTensor& a, CallSite site) { return run(UnaryOp::kErf, a, {}, site); }
DTensor relu(const DTensor& a, CallSite site) { return run(UnaryOp::kRelu, a, {}, site); }
DTensor silu(const DTensor& a, CallSite site) { return run(UnaryOp::kSilu, a, {}, site); }

DTensor leaky_relu(const DTensor& a, double slope, CallSite site) {
  return run(UnaryOp::kLeakyRelu, a, {slope}, site);
}
DTensor elu(const DTensor& a, double alpha, CallSite site) {
  return run(UnaryOp::kElu, a, {alpha}, site);
}
DTensor softplus(const DTensor& a, double beta, CallSite site) {
  return run(UnaryOp::kSoftplus, a, {beta}, site);
}
DTensor gelu(const DTensor& a, GeluForm form, CallSite site) {
  return run(form == GeluForm::kErf ? UnaryOp::kGelu : UnaryOp::kGeluTanh, a, {}, site);
}
DTensor clamp(const DTensor& a, const ClampOptions& range, CallSite site) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const double low = range.min.value_or(-kInf);
  const double high = range.max.value_or(kInf);
  if (std::isfinite(low) || !a.defined()) ops::check_number("clamp", a, low);
  if (std::isfinite(high)) ops::check_number("clamp", a, high);
  if (!(low <= high)) {
    throw ArgumentError("clamp: min is " + std::to_string(low) + ", max is " +
                        std::to_string(high));
  }
  if (low > 0) check_range("clamp", a.dtype(), low);
  if (high < 0) check_range("clamp", a.dtype(), high);
  return run(UnaryOp::kClamp, a, {low, high}, site);
}

DTensor sign(const DTensor& a, CallSite site) { return run(UnaryOp::kSign, a, {}, site); }
DTensor floor(const DTensor& a, CallSite site) { return run(UnaryOp::kFloor, a, {}, site); }
DTensor ceil(const DTensor& a, CallSite site) { return run(UnaryOp::kCeil, a, {}, site); }
DTensor round(const DTensor& a, CallSite site) { return run(UnaryOp::kRound, a, {}, site); }
DTensor trunc(const DTensor& a, CallSite site) { return run(UnaryOp::kTrunc, a, {}, site); }
DTensor isnan(const DTensor& a, CallSite site) { return run(UnaryOp::kIsNan, a, {}, site); }
DTensor isfinite(const DTensor& a, CallSite site) { return run(UnaryOp::kIsFinite, a, {}, site); }
DTensor logical_not(const DTensor& a, CallSite site) {
  return run(UnaryOp::kLogicalNot, a, {}, site);
}

}  // namespace dtensor
