#include "dtensor/ops/cpu/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/ops/cpu/parallel.h"
#include "dtensor/ops/cpu/rows.h"
#include "dtensor/ops/cpu/simd.h"

namespace dtensor::cpu {
namespace {

Shape rows_shape(const char* op, const Tensor& logits) {
  if (logits.ndim() == 0) {
    throw ArgumentError(std::string(op) + ": wants logits [...,v], found a scalar");
  }
  return Shape(
      std::span<const int64_t>(logits.shape()).first(static_cast<size_t>(logits.ndim() - 1)));
}

void check_statistic(const char* op, const Tensor& logits, const Tensor& t) {
  if (t.shape() == rows_shape(op, logits) && t.dtype() == accumulator_of(logits.dtype())) return;
  throw ArgumentError(std::string(op) + ": the rows of logits " + describe(logits) +
                      " want statistics " + std::string(name_of(accumulator_of(logits.dtype()))) +
                      to_string(rows_shape(op, logits)) + ", found " + describe(t));
}

void check_targets(const char* op, const Tensor& logits, const Tensor& targets,
                   const ClassPart& part) {
  if (targets.shape() == rows_shape(op, logits) && part.classes.size() == logits.shape().back()) {
    return;
  }
  throw ArgumentError(std::string(op) + ": wants logits [...,v] of the classes [" +
                      std::to_string(part.classes.begin) + ", " + std::to_string(part.classes.end) +
                      ") and targets [...], found " + describe(logits) + " and " +
                      describe(targets));
}

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

// f(isa, rows, row) for every row of logits, in parallel.
template <class T, class F>
void for_rows(const Tensor& logits, const F& f) {
  const Rows<T> rows(logits);
  parallel_rows(rows.count(), rows.width(), [&](int64_t begin, int64_t end) {
    simd::dispatch([&](auto isa) {
      for (int64_t row = begin; row < end; ++row) f(isa, rows, row);
    });
  });
}

template <class Isa, class T>
inline constexpr int kLanesOf = Isa::template lanes<simd::Compute<T>>();

// Does the row count, and is its target among the local classes?
bool counts(int64_t target, const ClassPart& part) {
  return !part.ignore_index || target != *part.ignore_index;
}
bool is_local(int64_t target, const ClassPart& part) {
  return counts(target, part) && target >= part.classes.begin && target < part.classes.end;
}

// One row of the gradient, without the target's part; `off` is what every class is given.
template <int kLanes, class T, class A>
DTENSOR_INLINE void scaled_softmax(const T* x, int64_t n, A max, A scale, A off, T* out) {
  simd::for_lanes<kLanes>(n, [&](int64_t i, auto lanes) {
    const auto e = simd::exp<kLanes>(simd::load_part<kLanes>(x + i, lanes) - max);
    simd::store_part<kLanes>(out + i, e * scale - off, lanes);
  });
}

}  // namespace

Tensor row_max(const Tensor& logits) {
  const Tensor out = Tensor::empty(rows_shape("row_max", logits), accumulator_of(logits.dtype()));
  visit_floating("row_max", logits.dtype(), [&](auto t) {
    using T = decltype(t);
    auto* m = out.data<simd::Compute<T>>();
    for_rows<T>(logits, [&](auto isa, const Rows<T>& rows, int64_t row) {
      m[row] = max_of<kLanesOf<decltype(isa), T>>(rows[row], rows.width());
    });
  });
  return out;
}

Tensor row_sum_exp(const Tensor& logits, const Tensor& max) {
  check_statistic("row_sum_exp", logits, max);
  const Tensor out = Tensor::empty(max.shape(), max.dtype());
  const Tensor maxima = max.contiguous();
  visit_floating("row_sum_exp", logits.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = simd::Compute<T>;
    const A* m = maxima.data<A>();
    A* s = out.data<A>();
    for_rows<T>(logits, [&](auto isa, const Rows<T>& rows, int64_t row) {
      s[row] = sum_exp_of<kLanesOf<decltype(isa), T>>(rows[row], rows.width(), m[row]);
    });
  });
  return out;
}

SoftmaxStats softmax_stats(const Tensor& logits) {
  const Shape shape = rows_shape("softmax_stats", logits);
  const DType dtype = accumulator_of(logits.dtype());
  SoftmaxStats out{Tensor::empty(shape, dtype), Tensor::empty(shape, dtype)};
  visit_floating("softmax_stats", logits.dtype(), [&](auto t) {
    using T = decltype(t);
    auto* m = out.max.data<simd::Compute<T>>();
    auto* s = out.sum.data<simd::Compute<T>>();
    for_rows<T>(logits, [&](auto isa, const Rows<T>& rows, int64_t row) {
      constexpr int kLanes = kLanesOf<decltype(isa), T>;
      m[row] = max_of<kLanes>(rows[row], rows.width());
      s[row] = sum_exp_of<kLanes>(rows[row], rows.width(), m[row]);
    });
  });
  return out;
}

int64_t count_valid(const Tensor& targets, std::optional<int64_t> ignore_index) {
  if (!ignore_index) return targets.numel();
  const Tensor flat = targets.contiguous();
  const int64_t* t = flat.data<int64_t>();
  return flat.numel() - std::count(t, t + flat.numel(), *ignore_index);
}

Tensor cross_entropy_loss(const Tensor& logits, const SoftmaxStats& stats, const Tensor& targets,
                          const ClassPart& part, double factor) {
  check_statistic("cross_entropy_loss", logits, stats.max);
  check_statistic("cross_entropy_loss", logits, stats.sum);
  check_targets("cross_entropy_loss", logits, targets, part);
  const Tensor flat = targets.contiguous();
  const Tensor maxima = stats.max.contiguous();
  const Tensor sums = stats.sum.contiguous();
  double loss = 0;
  visit_floating("cross_entropy_loss", logits.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = simd::Compute<T>;
    const Rows<T> rows(logits);
    const int64_t* target = flat.data<int64_t>();
    for (int64_t row = 0; row < rows.count(); ++row) {
      if (!counts(target[row], part)) continue;
      const double log_sum = std::log(static_cast<double>(sums.data<A>()[row])) +
                             static_cast<double>(maxima.data<A>()[row]);
      if (part.smoothing > 0) {
        double spread = 0;
        for (int64_t i = 0; i < rows.width(); ++i) spread += log_sum - static_cast<A>(rows[row][i]);
        loss += spread * part.smoothing / static_cast<double>(part.total);
      }
      if (!is_local(target[row], part)) continue;
      const double x = static_cast<A>(rows[row][target[row] - part.classes.begin]);
      loss += (1 - part.smoothing) * (log_sum - x);
    }
  });
  return Tensor::full({}, loss * factor, accumulator_of(logits.dtype()));
}

Tensor cross_entropy_backward(const Tensor& logits, const SoftmaxStats& stats,
                              const Tensor& targets, const ClassPart& part, double factor) {
  check_statistic("cross_entropy_backward", logits, stats.max);
  check_statistic("cross_entropy_backward", logits, stats.sum);
  check_targets("cross_entropy_backward", logits, targets, part);
  Tensor out = Tensor::empty(logits.shape(), logits.dtype());
  const Tensor flat = targets.contiguous();
  const Tensor maxima = stats.max.contiguous();
  const Tensor sums = stats.sum.contiguous();
  const double uniform = part.smoothing > 0 ? part.smoothing / static_cast<double>(part.total) : 0;
  visit_floating("cross_entropy_backward", logits.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = simd::Compute<T>;
    const int64_t* target = flat.data<int64_t>();
    const A* m = maxima.data<A>();
    const A* s = sums.data<A>();
    T* to = out.data<T>();
    for_rows<T>(logits, [&](auto isa, const Rows<T>& rows, int64_t row) {
      const int64_t n = rows.width();
      T* dx = to + row * n;
      if (!counts(target[row], part)) return static_cast<void>(std::fill_n(dx, n, T{}));
      const A scale = static_cast<A>(factor) / s[row];
      const A off = static_cast<A>(uniform * factor);
      scaled_softmax<kLanesOf<decltype(isa), T>>(rows[row], n, m[row], scale, off, dx);
      if (!is_local(target[row], part)) return;
      const int64_t at = target[row] - part.classes.begin;
      const A p = std::exp(static_cast<A>(rows[row][at]) - m[row]) / s[row];
      const A wanted = static_cast<A>(1 - part.smoothing + uniform);
      dx[at] = T((p - wanted) * static_cast<A>(factor));
    });
  });
  return out;
}

}  // namespace dtensor::cpu
