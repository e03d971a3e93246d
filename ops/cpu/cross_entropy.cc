#include "dtensor/ops/cpu/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "dtensor/ops/cpu/class_rows.h"
#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/ops/cpu/rows.h"
#include "dtensor/ops/cpu/simd.h"

namespace dtensor::cpu {
namespace {

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

int64_t count_valid(const Tensor& targets, std::optional<int64_t> ignore_index) {
  if (!ignore_index) return targets.numel();
  const Tensor flat = targets.contiguous();
  const int64_t* t = flat.data<int64_t>();
  return flat.numel() - std::count(t, t + flat.numel(), *ignore_index);
}

namespace {

// f(row, loss) for every row, one after the other; the loss is 0 in ignored rows.
template <class F>
void for_losses(const Tensor& logits, const SoftmaxStats& stats, const Tensor& targets,
                const ClassPart& part, const F& f) {
  check_statistic("cross_entropy_loss", logits, stats.max);
  check_statistic("cross_entropy_loss", logits, stats.sum);
  check_targets("cross_entropy_loss", logits, targets, part);
  const Tensor flat = targets.contiguous();
  const Tensor maxima = stats.max.contiguous();
  const Tensor sums = stats.sum.contiguous();
  visit_floating("cross_entropy_loss", logits.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = simd::Compute<T>;
    const Rows<T> rows(logits);
    const int64_t* target = flat.data<int64_t>();
    for (int64_t row = 0; row < rows.count(); ++row) {
      double loss = 0;
      if (counts(target[row], part)) {
        const double log_sum = std::log(static_cast<double>(sums.data<A>()[row])) +
                               static_cast<double>(maxima.data<A>()[row]);
        if (part.smoothing > 0) {
          double spread = 0;
          for (int64_t i = 0; i < rows.width(); ++i) {
            spread += log_sum - static_cast<A>(rows[row][i]);
          }
          loss += spread * part.smoothing / static_cast<double>(part.total);
        }
        if (is_local(target[row], part)) {
          const double x = static_cast<A>(rows[row][target[row] - part.classes.begin]);
          loss += (1 - part.smoothing) * (log_sum - x);
        }
      }
      f(row, loss);
    }
  });
}

}  // namespace

Tensor cross_entropy_loss(const Tensor& logits, const SoftmaxStats& stats, const Tensor& targets,
                          const ClassPart& part, double factor) {
  double all = 0;
  for_losses(logits, stats, targets, part, [&](int64_t, double loss) { all += loss; });
  return Tensor::full({}, all * factor, accumulator_of(logits.dtype()));
}

Tensor cross_entropy_losses(const Tensor& logits, const SoftmaxStats& stats, const Tensor& targets,
                            const ClassPart& part) {
  const Tensor wide = Tensor::empty(targets.shape(), DType::kFloat64);
  double* to = wide.data<double>();
  for_losses(logits, stats, targets, part, [&](int64_t row, double loss) { to[row] = loss; });
  return wide.to(accumulator_of(logits.dtype()));
}

Tensor cross_entropy_backward(const Tensor& logits, const SoftmaxStats& stats,
                              const Tensor& targets, const ClassPart& part, const Tensor& factors) {
  check_statistic("cross_entropy_backward", logits, stats.max);
  check_statistic("cross_entropy_backward", logits, stats.sum);
  check_targets("cross_entropy_backward", logits, targets, part);
  const Tensor each = factors.to(DType::kFloat64).expand(targets.shape()).contiguous();
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
    const double* f = each.data<double>();
    for_rows<T>(logits, [&](auto isa, const Rows<T>& rows, int64_t row) {
      const double factor = f[row];
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
