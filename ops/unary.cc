#include "dtensor/ops/unary.h"

#include <limits>
#include <string>

#include "dtensor/ops/broadcast.h"
#include "dtensor/ops/cpu/unary.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/lasting_rules.h"

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

// g times the slope: linear in g.
DTensor gradient(UnaryOp op, const Numbers& numbers, const DTensor& g, const DTensor& saved) {
  const ops::Kernel kernel = [op, numbers](const ops::KernelInfo&, ops::Pieces in) {
    return ops::Tensors{cpu::unary_backward(op, in[0], in[1], numbers)};
  };
  return ops::run1({.rule = backward_rule_of(op, g.ndim()), .kernel = kernel, .lasting = true},
                   {g, saved});
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
  ops::check_number("clamp", a, low);
  ops::check_number("clamp", a, high);
  if (!(low <= high)) {
    throw ArgumentError("clamp: min is " + std::to_string(low) + ", max is " +
                        std::to_string(high));
  }
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
