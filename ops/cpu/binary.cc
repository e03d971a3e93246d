#include "dtensor/ops/cpu/binary.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/ops/cpu/simd_math.h"
#include "dtensor/ops/cpu/value_error.h"

namespace dtensor::cpu {
namespace {

using simd::each;

template <class V>
using Plain = std::remove_cvref_t<V>;

constexpr BlockFns kAddFns =
    wrapping<2>([](const auto* x, auto& y, const auto* /*c*/) { y = x[0] + x[1]; });
constexpr BlockFns kSubFns =
    wrapping<2>([](const auto* x, auto& y, const auto* /*c*/) { y = x[0] - x[1]; });
constexpr BlockFns kMulFns =
    wrapping<2>([](const auto* x, auto& y, const auto* /*c*/) { y = x[0] * x[1]; });
constexpr BlockFns kDivFns =
    floating<2>([](const auto* x, auto& y, const auto* /*c*/) { y = x[0] / x[1]; });

constexpr BlockFns kMaximumFns = ordered<2>([](const auto* x, auto& y, const auto* /*c*/) {
  const Plain<decltype(y)> most = x[1] > x[0] ? x[1] : x[0];
  y = x[1] != x[1] ? x[1] : most;
});
constexpr BlockFns kMinimumFns = ordered<2>([](const auto* x, auto& y, const auto* /*c*/) {
  const Plain<decltype(y)> least = x[1] < x[0] ? x[1] : x[0];
  y = x[1] != x[1] ? x[1] : least;
});

struct FloorMod {
  template <class A>
  A operator()(A a, A b) const {
    if constexpr (std::is_integral_v<A>) {
      if (b == -1 || b == 0) return 0;  // the lowest integer over -1 does not fit
      const A r = a % b;
      return r != 0 && (r < 0) != (b < 0) ? r + b : r;
    } else {
      const A r = std::fmod(a, b);
      return r != 0 && (r < 0) != (b < 0) ? r + b : r;
    }
  }
};
constexpr BlockFns kRemainderFns =
    ordered<2>([](const auto* x, auto& y, const auto* /*c*/) { y = each(x[0], x[1], FloorMod{}); });

constexpr BlockFns kPowFns = floating<2>([](const auto* x, auto& y, const auto* /*c*/) {
  y = each(x[0], x[1], [](auto a, auto b) { return std::pow(a, b); });
});
constexpr BlockFns kAtan2Fns = floating<2>([](const auto* x, auto& y, const auto* /*c*/) {
  y = each(x[0], x[1], [](auto a, auto b) { return std::atan2(a, b); });
});

// holds(a, b, y) sets y to a mask.
template <class F>
constexpr BlockFns test(F /*f*/) {
  return ordered<2>([](const auto* x, auto& y, const auto* /*c*/) {
    using V = Plain<decltype(y)>;
    decltype(V{} < V{}) mask;
    F{}(x[0], x[1], mask);
    y = mask ? V{} + 1 : V{};
  });
}

struct Row {
  BinaryOp op;
  BinaryInfo info;
  BlockFns fns;
};

constexpr Row kTable[] = {
    {BinaryOp::kAdd, {"add", false}, kAddFns},
    {BinaryOp::kSub, {"sub", false}, kSubFns},
    {BinaryOp::kMul, {"mul", false}, kMulFns},
    {BinaryOp::kMaximum, {"maximum", false}, kMaximumFns},
    {BinaryOp::kMinimum, {"minimum", false}, kMinimumFns},
    {BinaryOp::kRemainder, {"remainder", false}, kRemainderFns},
    {BinaryOp::kDiv, {"div", false}, kDivFns},
    {BinaryOp::kPow, {"pow", false}, kPowFns},
    {BinaryOp::kAtan2, {"atan2", false}, kAtan2Fns},
    {BinaryOp::kEq, {"eq", true}, test([](const auto& a, const auto& b, auto& m) { m = a == b; })},
    {BinaryOp::kNe, {"ne", true}, test([](const auto& a, const auto& b, auto& m) { m = a != b; })},
    {BinaryOp::kLt, {"lt", true}, test([](const auto& a, const auto& b, auto& m) { m = a < b; })},
    {BinaryOp::kLe, {"le", true}, test([](const auto& a, const auto& b, auto& m) { m = a <= b; })},
    {BinaryOp::kGt, {"gt", true}, test([](const auto& a, const auto& b, auto& m) { m = a > b; })},
    {BinaryOp::kGe, {"ge", true}, test([](const auto& a, const auto& b, auto& m) { m = a >= b; })},
    {BinaryOp::kAnd, {"logical_and", true}, test([](const auto& a, const auto& b, auto& m) {
       m = (a != 0) & (b != 0);
     })},
    {BinaryOp::kOr, {"logical_or", true}, test([](const auto& a, const auto& b, auto& m) {
       m = (a != 0) | (b != 0);
     })},
    {BinaryOp::kXor, {"logical_xor", true}, test([](const auto& a, const auto& b, auto& m) {
       m = (a != 0) ^ (b != 0);
     })},
};

constexpr bool in_order() {
  for (size_t i = 0; i < std::size(kTable); ++i) {
    if (static_cast<size_t>(kTable[i].op) != i) return false;
  }
  return true;
}
static_assert(in_order());

const Row& row_of(BinaryOp op) { return kTable[static_cast<size_t>(op)]; }

void check_divisor(const Tensor& b) {
  if (is_floating(b.dtype())) return;
  const std::vector<int64_t> all = b.to(DType::kInt64).to_vector<int64_t>();
  if (std::ranges::count(all, 0) == 0) return;
  throw ValueError("remainder: an element of b, " + describe(b) + ", is 0");
}

Shape shape_of(const char* op, const Tensor& a, const Tensor& b) {
  check_same_dtype(op, a, b);
  return broadcast_shape(a.shape(), b.shape());
}

// ---- Slopes: in = g, a, b
constexpr BlockFns kLargerFns = floating<3>([](const auto* x, auto& y, const auto* /*c*/) {
  using V = Plain<decltype(y)>;
  const V not_above = x[1] == x[2] ? x[0] * 0.5F : V{};
  y = x[1] > x[2] ? x[0] : not_above;
});
constexpr BlockFns kWholeFns =
    floating<3>([](const auto* x, auto& y, const auto* /*c*/) { y = x[0]; });
// Neither b * b nor a * a + b * b is formed: they overflow, or vanish, long before the slope does.
constexpr BlockFns kDivInB = floating<3>(
    [](const auto* x, auto& y, const auto* /*c*/) { y = -(x[0] / x[2]) * (x[1] / x[2]); });
constexpr BlockFns kRemainderInB = floating<3>([](const auto* x, auto& y, const auto* /*c*/) {
  y = -x[0] * each(x[1], x[2], [](auto a, auto b) { return std::floor(a / b); });
});
constexpr BlockFns kPowInA = floating<3>([](const auto* x, auto& y, const auto* /*c*/) {
  y = x[0] * each(x[1], x[2], [](auto a, auto b) { return b == 0 ? 0 : b * std::pow(a, b - 1); });
});
constexpr BlockFns kPowInB = floating<3>([](const auto* x, auto& y, const auto* /*c*/) {
  y = x[0] * each(x[1], x[2], [](auto a, auto b) {
        return a == 0 && b >= 0 ? 0 : std::pow(a, b) * std::log(a);
      });
});
// g * along / (a * a + b * b), and 0 where a and b are.
template <class V>
DTENSOR_INLINE V atan2_slope(const V& g, const V& along, const V& a, const V& b) {
  const V most = simd::larger(simd::magnitude(a), simd::magnitude(b));
  constexpr auto kInf = std::numeric_limits<simd::ElementOf<V>>::infinity();
  const V unit = ((most > 0) & (most < kInf)) ? most : V{} + 1;
  const V u = a / unit;
  const V v = b / unit;
  const V slope = (g / unit) * ((along / unit) / (u * u + v * v));
  return most == 0 ? V{} : slope;
}
constexpr BlockFns kAtan2InA = floating<3>(
    [](const auto* x, auto& y, const auto* /*c*/) { y = atan2_slope(x[0], x[2], x[1], x[2]); });
constexpr BlockFns kAtan2InB = floating<3>(
    [](const auto* x, auto& y, const auto* /*c*/) { y = -atan2_slope(x[0], x[1], x[1], x[2]); });

const BlockFns& slope_of(BinaryOp op, Side side) {
  switch (op) {
    case BinaryOp::kMaximum:
    case BinaryOp::kMinimum:
      return kLargerFns;
    case BinaryOp::kDiv:
      return kDivInB;
    case BinaryOp::kRemainder:
      return side == Side::kA ? kWholeFns : kRemainderInB;
    case BinaryOp::kPow:
      return side == Side::kA ? kPowInA : kPowInB;
    case BinaryOp::kAtan2:
      return side == Side::kA ? kAtan2InA : kAtan2InB;
    default:
      throw InternalError(std::string("no slope of ") + info_of(op).name);
  }
}

Tensor run(BinaryOp op, const Tensor& a, const Tensor& b, const Shape& shape, DType dtype) {
  check_dtype(op, dtype);
  if (op == BinaryOp::kRemainder) check_divisor(b);
  const Row& row = row_of(op);
  const Tensor out = Tensor::empty(shape, row.info.to_bool ? DType::kBool : dtype);
  const Tensor* const in[] = {&a, &b};
  map_blocks(row.fns, {in, out, dtype});
  return out;
}

// Of g's dtype, or a number of the type computed in.
void check_operand(const char* op, const Tensor& g, const Tensor& x) {
  if (x.ndim() > 0 || x.dtype() != computed_in(g.dtype())) check_same_dtype(op, g, x);
}

// Not of x's dtype, which might round it to fewer digits than are computed with.
Tensor number_for(const Tensor& x, double number) {
  return Tensor::full({}, number, computed_in(x.dtype()));
}

constexpr BlockFns kWhereFns =
    ordered<3>([](const auto* x, auto& y, const auto* /*c*/) { y = x[0] != 0 ? x[1] : x[2]; });

}  // namespace

const BinaryInfo& info_of(BinaryOp op) { return row_of(op).info; }

void check_dtype(BinaryOp op, DType dtype) {
  check_takes(info_of(op).name, row_of(op).fns, dtype,
              info_of(op).to_bool ? TakesBool::kYes : TakesBool::kNo);
}

Shape broadcast_shape(const Shape& a, const Shape& b) {
  Shape out = Shape::filled(std::max(a.ndim(), b.ndim()), 1);
  for (int i = 1; i <= out.ndim(); ++i) {
    const int64_t m = i <= a.ndim() ? a[a.ndim() - i] : 1;
    const int64_t n = i <= b.ndim() ? b[b.ndim() - i] : 1;
    if (m != n && m != 1 && n != 1) {
      throw ArgumentError("broadcast: shapes " + to_string(a) + " and " + to_string(b) +
                          " do not fit: from the right, dims must be equal or 1");
    }
    out[out.ndim() - i] = m == 1 ? n : m;
  }
  return out;
}

Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b) {
  return run(op, a, b, shape_of(info_of(op).name, a, b), a.dtype());
}
Tensor binary(BinaryOp op, const Tensor& a, double b) {
  return run(op, a, number_for(a, b), a.shape(), a.dtype());
}
Tensor binary(BinaryOp op, double a, const Tensor& b) {
  return run(op, number_for(b, a), b, b.shape(), b.dtype());
}

Tensor binary_backward(BinaryOp op, Side side, const Tensor& g, const Tensor& a, const Tensor& b) {
  const char* name = info_of(op).name;
  check_operand(name, g, a);
  check_operand(name, g, b);
  const Shape shape = broadcast_shape(g.shape(), broadcast_shape(a.shape(), b.shape()));
  const Tensor out = Tensor::empty(shape, g.dtype());
  // The larger of a and b, or of b and a: that of -a and -b for the smaller.
  const bool swap = (op == BinaryOp::kMaximum && side == Side::kB) ||
                    (op == BinaryOp::kMinimum && side == Side::kA);
  const Tensor* const in[] = {&g, swap ? &b : &a, swap ? &a : &b};
  map_blocks(slope_of(op, side), {in, out, g.dtype()});
  return out;
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const Shape shape = broadcast_shape(condition.shape(), shape_of("where", a, b));
  const Tensor out = Tensor::empty(shape, a.dtype());
  // Brought to a's dtype, what is not 0 might become it: asked before that.
  const bool plain = condition.dtype() == DType::kBool || condition.dtype() == a.dtype();
  const Tensor chosen = plain ? condition : binary(BinaryOp::kNe, condition, 0.0);
  const Tensor* const in[] = {&chosen, &a, &b};
  map_blocks(kWhereFns, {in, out, a.dtype()});
  return out;
}

}  // namespace dtensor::cpu
