#include <cmath>
#include <type_traits>

#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/ops/cpu/simd_math.h"
#include "dtensor/ops/cpu/unary.h"

namespace dtensor::cpu {
namespace {

using simd::each;
using simd::k;

// f(g, s, dx), s the input or the output of the op.
template <class F>
constexpr BlockFns slope(F /*f*/) {
  return floating<2>([](const auto* x, auto& y, const auto* /*c*/) { F{}(x[0], x[1], y); });
}

constexpr BlockFns kAbsFns = slope([](const auto& g, const auto& x, auto& dx) {
  using V = std::remove_cvref_t<decltype(g)>;
  const V not_above = x < 0 ? -g : V{};
  dx = x > 0 ? g : not_above;
});

constexpr BlockFns kReluFns = slope([](const auto& g, const auto& x, auto& dx) {
  using V = std::remove_cvref_t<decltype(g)>;
  dx = x > 0 ? g : V{};
});

constexpr BlockFns kClampFns = floating<2>([](const auto* x, auto& y, const auto* c) {
  using V = std::remove_cvref_t<decltype(y)>;
  const V above = x[1] < c[0] ? V{} : x[0];
  y = x[1] > c[1] ? V{} : above;
});

constexpr BlockFns kLeakyReluFns =
    floating<2>([](const auto* x, auto& y, const auto* c) { y = x[1] < 0 ? x[0] * c[0] : x[0]; });

constexpr BlockFns kEluFns = floating<2>([](const auto* x, auto& y, const auto* c) {
  using V = std::remove_cvref_t<decltype(y)>;
  const V below = x[0] * c[0] * simd::exp_of(x[1]);
  y = x[1] > 0 ? x[0] : below;
});

constexpr BlockFns kSoftplusFns = floating<2>([](const auto* x, auto& y, const auto* c) {
  using V = std::remove_cvref_t<decltype(y)>;
  y = x[0] * simd::sigmoid(V(x[1] * c[0]));
});

constexpr BlockFns kSiluFns = slope([](const auto& g, const auto& x, auto& dx) {
  const auto s = simd::sigmoid(x);
  dx = g * s * (1 + x * (1 - s));
});

constexpr BlockFns kGeluFns = slope([](const auto& g, const auto& x, auto& dx) {
  using V = std::remove_cvref_t<decltype(g)>;
  const V below = 0.5F * (1 + simd::erf_of(V(x * k<V>(M_SQRT1_2))));
  const V density = simd::exp_of(V(-0.5F * x * x)) * k<V>(0.5 * M_SQRT1_2 * M_2_SQRTPI);
  dx = g * (below + x * density);
});

constexpr BlockFns kGeluTanhFns = slope([](const auto& g, const auto& x, auto& dx) {
  using V = std::remove_cvref_t<decltype(g)>;
  const auto c = k<V>(M_SQRT1_2 * M_2_SQRTPI);
  const V z = x * x;
  const V t = simd::tanh_of(V(x * (1 + z * k<V>(0.044715)) * c));
  const V slope_of_u = c * (1 + z * k<V>(3 * 0.044715));
  dx = g * 0.5F * ((1 + t) + x * (1 - t * t) * slope_of_u);
});

BlockFns fns_of(UnaryOp op) {
  switch (op) {
    case UnaryOp::kAbs:
      return kAbsFns;
    case UnaryOp::kSquare:
      return slope([](const auto& g, const auto& x, auto& dx) { dx = 2 * g * x; });
    case UnaryOp::kRelu:
      return kReluFns;
    case UnaryOp::kClamp:
      return kClampFns;
    case UnaryOp::kExp:
      return slope([](const auto& g, const auto& y, auto& dx) { dx = g * y; });
    case UnaryOp::kExpm1:
      return slope([](const auto& g, const auto& y, auto& dx) { dx = g * (y + 1); });
    case UnaryOp::kLog:
      return slope([](const auto& g, const auto& x, auto& dx) { dx = g / x; });
    case UnaryOp::kLog1p:
      return slope([](const auto& g, const auto& x, auto& dx) { dx = g / (x + 1); });
    case UnaryOp::kLog2:
      return slope([](const auto& g, const auto& x, auto& dx) {
        dx = g / (x * k<std::remove_cvref_t<decltype(g)>>(M_LN2));
      });
    case UnaryOp::kSqrt:
      return slope([](const auto& g, const auto& y, auto& dx) { dx = 0.5F * g / y; });
    case UnaryOp::kRsqrt:
      return slope([](const auto& g, const auto& y, auto& dx) { dx = -0.5F * g * y * y * y; });
    case UnaryOp::kReciprocal:
      return slope([](const auto& g, const auto& y, auto& dx) { dx = -g * y * y; });
    case UnaryOp::kSin:
      return slope([](const auto& g, const auto& x, auto& dx) {
        dx = g * each(x, [](auto v) { return std::cos(v); });
      });
    case UnaryOp::kCos:
      return slope([](const auto& g, const auto& x, auto& dx) {
        dx = -g * each(x, [](auto v) { return std::sin(v); });
      });
    case UnaryOp::kTan:
      return slope([](const auto& g, const auto& y, auto& dx) { dx = g * (1 + y * y); });
    case UnaryOp::kAtan:
      return slope([](const auto& g, const auto& x, auto& dx) { dx = g / (1 + x * x); });
    case UnaryOp::kTanh:
      return slope([](const auto& g, const auto& y, auto& dx) { dx = g * (1 - y * y); });
    case UnaryOp::kSigmoid:
      return slope([](const auto& g, const auto& y, auto& dx) { dx = g * y * (1 - y); });
    case UnaryOp::kErf:
      return slope([](const auto& g, const auto& x, auto& dx) {
        using V = std::remove_cvref_t<decltype(g)>;
        dx = g * simd::exp_of(V(-x * x)) * k<V>(M_2_SQRTPI);
      });
    case UnaryOp::kLeakyRelu:
      return kLeakyReluFns;
    case UnaryOp::kElu:
      return kEluFns;
    case UnaryOp::kSilu:
      return kSiluFns;
    case UnaryOp::kGelu:
      return kGeluFns;
    case UnaryOp::kGeluTanh:
      return kGeluTanhFns;
    case UnaryOp::kSoftplus:
      return kSoftplusFns;
    default:
      throw InternalError(std::string("no slope of ") + info_of(op).name);
  }
}

}  // namespace

Tensor unary_backward(UnaryOp op, const Tensor& g, const Tensor& saved, const Numbers& numbers) {
  check_same_dtype(info_of(op).name, g, saved);
  check_same_shape(info_of(op).name, g, saved);
  internal_check(is_floating(g.dtype()), "a gradient that is not floating");
  const Tensor out = Tensor::empty(g.shape(), g.dtype());
  const Tensor* const in[] = {&g, &saved};
  map_blocks(fns_of(op), {in, out, g.dtype(), numbers});
  return out;
}

}  // namespace dtensor::cpu
