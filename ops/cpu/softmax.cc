#include "dtensor/ops/cpu/softmax.h"

#include <cmath>
#include <limits>

#include "dtensor/ops/cpu/class_rows.h"
#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/ops/cpu/rows.h"
#include "dtensor/ops/cpu/simd.h"

namespace dtensor::cpu {
namespace {

template <int kLanes, class T, class A = simd::Compute<T>>
DTENSOR_INLINE A max_of(const T* x, int64_t n) {
  constexpr A kLowest = -std::numeric_limits<A>::infinity();
  auto most = simd::splat<A, kLanes>(kLowest);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) most = simd::larger(most, simd::load<kLanes>(x + i));
  A m = simd::max_lanes<kLanes, A>(most);
  for (; i < n; ++i) m = simd::larger(m, static_cast<A>(x[i]));
  return m;
}

// Lanes beyond the end are given -inf, so that they add exp(-inf) = 0.
template <int kLanes, class T, class A = simd::Compute<T>>
DTENSOR_INLINE A sum_exp_of(const T* x, int64_t n, A max) {
  simd::Vec<A, kLanes> sum{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) sum += simd::exp<kLanes>(simd::load<kLanes>(x + i) - max);
  if (i < n) {
    auto last = simd::splat<A, kLanes>(-std::numeric_limits<A>::infinity());
    for (int l = 0; i + l < n; ++l) last[l] = static_cast<A>(x[i + l]) - max;
    sum += simd::exp<kLanes>(last);
  }
  return simd::sum_lanes<kLanes, A>(sum);
}

}  // namespace

Tensor row_max(const Tensor& x) {
  const Tensor out = Tensor::empty(rows_shape("row_max", x), accumulator_of(x.dtype()));
  visit_floating("row_max", x.dtype(), [&](auto t) {
    using T = decltype(t);
    auto* m = out.data<simd::Compute<T>>();
    for_rows<T>(x, [&](auto isa, const Rows<T>& rows, int64_t row) {
      m[row] = max_of<kLanesOf<decltype(isa), T>>(rows[row], rows.width());
    });
  });
  return out;
}

Tensor row_sum_exp(const Tensor& x, const Tensor& max) {
  check_statistic("row_sum_exp", x, max);
  const Tensor out = Tensor::empty(max.shape(), max.dtype());
  const Tensor maxima = max.contiguous();
  visit_floating("row_sum_exp", x.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = simd::Compute<T>;
    const A* m = maxima.data<A>();
    A* s = out.data<A>();
    for_rows<T>(x, [&](auto isa, const Rows<T>& rows, int64_t row) {
      s[row] = sum_exp_of<kLanesOf<decltype(isa), T>>(rows[row], rows.width(), m[row]);
    });
  });
  return out;
}

SoftmaxStats softmax_stats(const Tensor& x) {
  const Shape shape = rows_shape("softmax_stats", x);
  const DType dtype = accumulator_of(x.dtype());
  SoftmaxStats out{Tensor::empty(shape, dtype), Tensor::empty(shape, dtype)};
  visit_floating("softmax_stats", x.dtype(), [&](auto t) {
    using T = decltype(t);
    auto* m = out.max.data<simd::Compute<T>>();
    auto* s = out.sum.data<simd::Compute<T>>();
    for_rows<T>(x, [&](auto isa, const Rows<T>& rows, int64_t row) {
      constexpr int kLanes = kLanesOf<decltype(isa), T>;
      m[row] = max_of<kLanes>(rows[row], rows.width());
      s[row] = sum_exp_of<kLanes>(rows[row], rows.width(), m[row]);
    });
  });
  return out;
}

Tensor softmax(const Tensor& x, const SoftmaxStats& stats, SoftmaxForm form) {
  check_statistic("softmax", x, stats.max);
  check_statistic("softmax", x, stats.sum);
  const Tensor out = Tensor::empty(x.shape(), x.dtype());
  const Tensor maxima = stats.max.contiguous();
  const Tensor sums = stats.sum.contiguous();
  visit_floating("softmax", x.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = simd::Compute<T>;
    const A* m = maxima.data<A>();
    const A* s = sums.data<A>();
    T* to = out.data<T>();
    for_rows<T>(x, [&](auto isa, const Rows<T>& rows, int64_t row) {
      constexpr int kLanes = kLanesOf<decltype(isa), T>;
      const int64_t n = rows.width();
      const T* from = rows[row];
      T* y = to + row * n;
      const A max = m[row];
      if (form == SoftmaxForm::kPlain) {
        const A scale = 1 / s[row];
        simd::for_lanes<kLanes>(n, [&](int64_t i, auto lanes) {
          const auto e = simd::exp<kLanes>(simd::load_part<kLanes>(from + i, lanes) - max);
          simd::store_part<kLanes>(y + i, e * scale, lanes);
        });
      } else {
        const A log_sum = std::log(s[row]);
        simd::for_lanes<kLanes>(n, [&](int64_t i, auto lanes) {
          const auto shifted = simd::load_part<kLanes>(from + i, lanes) - max;
          simd::store_part<kLanes>(y + i, shifted - log_sum, lanes);
        });
      }
    });
  });
  return out;
}

namespace {

void check_gradient(const char* op, const Tensor& g, const Tensor& y) {
  check_same_dtype(op, g, y);
  check_same_shape(op, g, y);
}

}  // namespace

Tensor softmax_dot(const Tensor& g, const Tensor& y, SoftmaxForm form) {
  check_gradient("softmax_dot", g, y);
  const Tensor out = Tensor::empty(rows_shape("softmax_dot", y), accumulator_of(y.dtype()));
  visit_floating("softmax_dot", y.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = simd::Compute<T>;
    const Rows<T> ys(y);
    A* to = out.data<A>();
    for_rows<T>(g, [&](auto isa, const Rows<T>& gs, int64_t row) {
      constexpr int kLanes = kLanesOf<decltype(isa), T>;
      simd::Vec<A, kLanes> sum{};
      simd::for_lanes<kLanes>(gs.width(), [&](int64_t i, auto lanes) {
        const auto v = simd::load_part<kLanes>(gs[row] + i, lanes);
        sum += form == SoftmaxForm::kLog ? v : v * simd::load_part<kLanes>(ys[row] + i, lanes);
      });
      to[row] = simd::sum_lanes<kLanes, A>(sum);
    });
  });
  return out;
}

Tensor softmax_backward(const Tensor& g, const Tensor& y, const Tensor& dot, SoftmaxForm form) {
  check_gradient("softmax_backward", g, y);
  check_statistic("softmax_backward", y, dot);
  const Tensor out = Tensor::empty(y.shape(), y.dtype());
  const Tensor dots = dot.contiguous();
  visit_floating("softmax_backward", y.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = simd::Compute<T>;
    const Rows<T> ys(y);
    const A* d = dots.data<A>();
    T* to = out.data<T>();
    for_rows<T>(g, [&](auto isa, const Rows<T>& gs, int64_t row) {
      constexpr int kLanes = kLanesOf<decltype(isa), T>;
      const int64_t n = gs.width();
      const A sum = d[row];
      simd::for_lanes<kLanes>(n, [&](int64_t i, auto lanes) {
        const auto v = simd::load_part<kLanes>(gs[row] + i, lanes);
        const auto p = simd::load_part<kLanes>(ys[row] + i, lanes);
        simd::Vec<A, kLanes> dx;
        if (form == SoftmaxForm::kLog) {
          dx = v - simd::exp<kLanes>(p) * sum;
        } else {
          dx = p * (v - sum);
        }
        simd::store_part<kLanes>(to + row * n + i, dx, lanes);
      });
    });
  });
  return out;
}

}  // namespace dtensor::cpu
