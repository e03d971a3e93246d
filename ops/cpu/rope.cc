#include "dtensor/ops/cpu/rope.h"

#include <string>

#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/ops/cpu/half.h"
#include "dtensor/ops/cpu/parallel.h"
#include "dtensor/ops/cpu/rows.h"
#include "dtensor/ops/cpu/simd.h"

namespace dtensor::cpu {
namespace {

enum class Direction { kForward, kBackward };

void check(const char* op, const Tensor& x, const Tensor& table) {
  const bool fits = x.ndim() >= 3 && x.shape().back() % 2 == 0 &&
                    table.shape() == Shape{x.shape()[1], x.shape().back()} &&
                    (table.dtype() == x.dtype() || table.dtype() == accumulator_of(x.dtype()));
  if (fits) return;
  throw ArgumentError(std::string(op) +
                      ": wants x [b,t,...,d] with even d and tables [t,d] of its dtype, found " +
                      describe(x) + " and " + describe(table));
}

// One row: y1 = x1 c1 - x2 s1, y2 = x2 c2 + x1 s2; backward, its transpose, y1 = x1 c1 + x2 s2,
// y2 = x2 c2 - x1 s1.
template <Direction kDirection, int kLanes, class T, class A>
DTENSOR_INLINE void rotate(const T* x, const A* c, const A* s, int64_t half, T* y) {
  simd::for_lanes<kLanes>(half, [&](int64_t i, auto lanes) {
    const auto x1 = simd::load_part<kLanes>(x + i, lanes);
    const auto x2 = simd::load_part<kLanes>(x + half + i, lanes);
    const auto c1 = simd::load_part<kLanes>(c + i, lanes);
    const auto c2 = simd::load_part<kLanes>(c + half + i, lanes);
    const auto s1 = simd::load_part<kLanes>(s + i, lanes);
    const auto s2 = simd::load_part<kLanes>(s + half + i, lanes);
    if constexpr (kDirection == Direction::kForward) {
      simd::store_part<kLanes>(y + i, x1 * c1 - x2 * s1, lanes);
      simd::store_part<kLanes>(y + half + i, x2 * c2 + x1 * s2, lanes);
    } else {
      simd::store_part<kLanes>(y + i, x1 * c1 + x2 * s2, lanes);
      simd::store_part<kLanes>(y + half + i, x2 * c2 - x1 * s1, lanes);
    }
  });
}

template <Direction kDirection>
Tensor run(const char* op, const Tensor& x, const Tensor& cos, const Tensor& sin) {
  check(op, x, cos);
  check(op, x, sin);
  if (x.dtype() == DType::kFloat16) {
    return run<kDirection>(op, f16_as_f32(x), f16_as_f32(cos), f16_as_f32(sin)).to(DType::kFloat16);
  }
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  if (x.numel() == 0) return out;
  visit_floating(op, x.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = simd::Compute<T>;
    const Rows<T> rows(x);
    const Tensor c = cos.to(kDTypeOf<A>).contiguous();
    const Tensor s = sin.to(kDTypeOf<A>).contiguous();
    const int64_t positions = x.shape()[1];
    const int64_t d = rows.width();
    const int64_t heads = rows.count() / (x.shape()[0] * positions);  // rows of one position
    T* y = out.data<T>();
    parallel_rows(rows.count(), d, [&](int64_t begin, int64_t end) {
      simd::dispatch([&](auto isa) {
        constexpr int kLanes = decltype(isa)::template lanes<A>();
        for (int64_t row = begin; row < end; ++row) {
          const int64_t at = row / heads % positions * d;
          rotate<kDirection, kLanes>(rows[row], c.data<A>() + at, s.data<A>() + at, d / 2,
                                     y + row * d);
        }
      });
    });
  });
  return out;
}

}  // namespace

Tensor rope(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  return run<Direction::kForward>("rope", x, cos, sin);
}
Tensor rope_backward(const Tensor& g, const Tensor& cos, const Tensor& sin) {
  return run<Direction::kBackward>("rope_backward", g, cos, sin);
}

}  // namespace dtensor::cpu
