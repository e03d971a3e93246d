#include "dtensor/ops/cpu/unary.h"

#include <array>
#include <cmath>
#include <type_traits>

#include "dtensor/ops/cpu/simd_math.h"

namespace dtensor::cpu {
namespace {

using simd::each;
using simd::k;

template <class V>
using Plain = std::remove_cvref_t<V>;

constexpr BlockFns kNegFns =
    wrapping<1>([](const auto* x, auto& y, const auto* /*c*/) { y = -x[0]; });

constexpr BlockFns kAbsFns = wrapping<1>([](const auto* x, auto& y, const auto* /*c*/) {
  using V = Plain<decltype(y)>;
  if constexpr (std::is_floating_point_v<simd::ElementOf<V>>) {
    y = simd::magnitude(x[0]);
  } else {
    const V sign = V{} - (x[0] >> 63);
    y = (x[0] ^ sign) - sign;
  }
});

constexpr BlockFns kSignFns = ordered<1>([](const auto* x, auto& y, const auto* /*c*/) {
  using V = Plain<decltype(y)>;
  const V not_above = x[0] < 0 ? V{} - 1 : x[0];  // 0 and NaN stay
  y = x[0] > 0 ? V{} + 1 : not_above;
});

constexpr BlockFns kSquareFns =
    wrapping<1>([](const auto* x, auto& y, const auto* /*c*/) { y = x[0] * x[0]; });

constexpr BlockFns kReluFns = ordered<1>([](const auto* x, auto& y, const auto* /*c*/) {
  const auto zero = Plain<decltype(y)>{};
  y = x[0] < 0 ? zero : x[0];
});

constexpr BlockFns kClampFns = ordered<1>([](const auto* x, auto& y, const auto* c) {
  using V = Plain<decltype(y)>;
  const V low = V{} + c[0];
  const V high = V{} + c[1];
  y = x[0] < low ? low : x[0];
  y = y > high ? high : y;
});

constexpr BlockFns kSqrtFns = floating<1>([](const auto* x, auto& y, const auto* /*c*/) {
  y = each(x[0], [](auto v) { return std::sqrt(v); });
});

constexpr BlockFns kRsqrtFns = floating<1>([](const auto* x, auto& y, const auto* /*c*/) {
  y = 1 / each(x[0], [](auto v) { return std::sqrt(v); });
});

constexpr BlockFns kLeakyReluFns =
    floating<1>([](const auto* x, auto& y, const auto* c) { y = x[0] < 0 ? x[0] * c[0] : x[0]; });

constexpr BlockFns kEluFns = floating<1>([](const auto* x, auto& y, const auto* c) {
  const Plain<decltype(y)> below = each(x[0], [](auto v) { return std::expm1(v); }) * c[0];
  y = x[0] > 0 ? x[0] : below;
});

constexpr BlockFns kSiluFns =
    floating<1>([](const auto* x, auto& y, const auto* /*c*/) { y = x[0] * simd::sigmoid(x[0]); });

constexpr BlockFns kGeluFns = floating<1>([](const auto* x, auto& y, const auto* /*c*/) {
  using V = Plain<decltype(y)>;
  y = 0.5F * x[0] * (1 + simd::erf_of(V(x[0] * k<V>(M_SQRT1_2))));
});

constexpr BlockFns kGeluTanhFns = floating<1>([](const auto* x, auto& y, const auto* /*c*/) {
  using V = Plain<decltype(y)>;
  const V u = x[0] * (1 + x[0] * x[0] * k<V>(0.044715)) * k<V>(M_SQRT1_2 * M_2_SQRTPI);
  y = 0.5F * x[0] * (1 + simd::tanh_of(u));
});

constexpr BlockFns kSoftplusFns = floating<1>([](const auto* x, auto& y, const auto* c) {
  using V = Plain<decltype(y)>;
  const V u = x[0] * c[0];
  const V above = u < 0 ? V{} : u;
  y = (above + simd::log1p_of_positive(simd::exp_of(V(-simd::magnitude(u))))) / c[0];
});

constexpr BlockFns kIsNanFns = floating<1>([](const auto* x, auto& y, const auto* /*c*/) {
  using V = Plain<decltype(y)>;
  y = x[0] != x[0] ? V{} + 1 : V{};
});

constexpr BlockFns kIsFiniteFns = floating<1>([](const auto* x, auto& y, const auto* /*c*/) {
  using V = Plain<decltype(y)>;
  y = x[0] - x[0] == 0 ? V{} + 1 : V{};
});

constexpr BlockFns kLogicalNotFns = ordered<1>([](const auto* x, auto& y, const auto* /*c*/) {
  using V = Plain<decltype(y)>;
  y = x[0] == 0 ? V{} + 1 : V{};
});

// A function of the C library, lane by lane.
template <class F>
constexpr BlockFns by_lane(F /*f*/) {
  return floating<1>([](const auto* x, auto& y, const auto* /*c*/) { y = each(x[0], F{}); });
}
// One of simd_math.h.
template <class F>
constexpr BlockFns by_vector(F /*f*/) {
  return floating<1>([](const auto* x, auto& y, const auto* /*c*/) { F{}(x[0], y); });
}

struct Row {
  UnaryOp op;
  UnaryInfo info;
  BlockFns fns;
};

using enum UnarySaves;

constexpr Row kTable[] = {
    {UnaryOp::kNeg, {"neg", kNothing, false}, kNegFns},
    {UnaryOp::kAbs, {"abs", kInput, false}, kAbsFns},
    {UnaryOp::kSign, {"sign", kNoGradient, false}, kSignFns},
    {UnaryOp::kSquare, {"square", kInput, false}, kSquareFns},
    {UnaryOp::kRelu, {"relu", kInput, false}, kReluFns},
    {UnaryOp::kClamp, {"clamp", kInput, false}, kClampFns},
    {UnaryOp::kExp, {"exp", kOutput, false}, by_vector([](const auto& v, auto& y) {
       y = simd::exp_of(v);
     })},
    {UnaryOp::kExpm1, {"expm1", kOutput, false}, by_lane([](auto v) { return std::expm1(v); })},
    {UnaryOp::kLog, {"log", kInput, false}, by_vector([](const auto& v, auto& y) {
       y = simd::log_of(v);
     })},
    {UnaryOp::kLog1p, {"log1p", kInput, false}, by_lane([](auto v) { return std::log1p(v); })},
    {UnaryOp::kLog2, {"log2", kInput, false}, by_lane([](auto v) { return std::log2(v); })},
    {UnaryOp::kSqrt, {"sqrt", kOutput, false}, kSqrtFns},
    {UnaryOp::kRsqrt, {"rsqrt", kOutput, false}, kRsqrtFns},
    {UnaryOp::kReciprocal, {"reciprocal", kOutput, false}, by_vector([](const auto& v, auto& y) {
       y = 1 / v;
     })},
    {UnaryOp::kSin, {"sin", kInput, false}, by_lane([](auto v) { return std::sin(v); })},
    {UnaryOp::kCos, {"cos", kInput, false}, by_lane([](auto v) { return std::cos(v); })},
    {UnaryOp::kTan, {"tan", kOutput, false}, by_lane([](auto v) { return std::tan(v); })},
    {UnaryOp::kAtan, {"atan", kInput, false}, by_lane([](auto v) { return std::atan(v); })},
    {UnaryOp::kTanh, {"tanh", kOutput, false}, by_vector([](const auto& v, auto& y) {
       y = simd::tanh_of(v);
     })},
    {UnaryOp::kSigmoid, {"sigmoid", kOutput, false}, by_vector([](const auto& v, auto& y) {
       y = simd::sigmoid(v);
     })},
    {UnaryOp::kErf, {"erf", kInput, false}, by_vector([](const auto& v, auto& y) {
       y = simd::erf_of(v);
     })},
    {UnaryOp::kLeakyRelu, {"leaky_relu", kInput, false}, kLeakyReluFns},
    {UnaryOp::kElu, {"elu", kInput, false}, kEluFns},
    {UnaryOp::kSilu, {"silu", kInput, false}, kSiluFns},
    {UnaryOp::kGelu, {"gelu", kInput, false}, kGeluFns},
    {UnaryOp::kGeluTanh, {"gelu_tanh", kInput, false}, kGeluTanhFns},
    {UnaryOp::kSoftplus, {"softplus", kInput, false}, kSoftplusFns},
    {UnaryOp::kFloor, {"floor", kNoGradient, false}, by_lane([](auto v) { return std::floor(v); })},
    {UnaryOp::kCeil, {"ceil", kNoGradient, false}, by_lane([](auto v) { return std::ceil(v); })},
    {UnaryOp::kRound, {"round", kNoGradient, false}, by_lane([](auto v) {
       return std::nearbyint(v);
     })},
    {UnaryOp::kTrunc, {"trunc", kNoGradient, false}, by_lane([](auto v) { return std::trunc(v); })},
    {UnaryOp::kIsNan, {"isnan", kNoGradient, true}, kIsNanFns},
    {UnaryOp::kIsFinite, {"isfinite", kNoGradient, true}, kIsFiniteFns},
    {UnaryOp::kLogicalNot, {"logical_not", kNoGradient, true}, kLogicalNotFns},
};

constexpr bool in_order() {
  for (size_t i = 0; i < std::size(kTable); ++i) {
    if (static_cast<size_t>(kTable[i].op) != i) return false;
  }
  return true;
}
static_assert(in_order());

const Row& row_of(UnaryOp op) { return kTable[static_cast<size_t>(op)]; }

}  // namespace

const UnaryInfo& info_of(UnaryOp op) { return row_of(op).info; }

void check_dtype(UnaryOp op, DType dtype) {
  check_takes(info_of(op).name, row_of(op).fns, dtype,
              info_of(op).to_bool ? TakesBool::kYes : TakesBool::kNo);
}

Tensor unary(UnaryOp op, const Tensor& x, const Numbers& numbers) {
  check_dtype(op, x.dtype());
  const Row& row = row_of(op);
  const Tensor out = Tensor::empty(x.shape(), row.info.to_bool ? DType::kBool : x.dtype());
  const Tensor* const in[] = {&x};
  map_blocks(row.fns, {in, out, x.dtype(), numbers});
  return out;
}

}  // namespace dtensor::cpu
