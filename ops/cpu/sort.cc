#include "dtensor/ops/cpu/sort.h"

#include <algorithm>
#include <numeric>
#include <type_traits>
#include <vector>

#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/ops/cpu/parallel.h"

namespace dtensor::cpu {
namespace {

// The first `count` of n elements `step` apart.
template <class T>
class Sorter {
 public:
  Sorter(int64_t n, int64_t step, Order order, int64_t count)
      : n_(n), step_(step), order_(order), count_(count) {}

  void run(const T* in, T* values, int64_t* indices) {
    at_.resize(static_cast<size_t>(n_));
    std::iota(at_.begin(), at_.end(), int64_t{0});
    const auto before = [&](int64_t a, int64_t b) {
      const T x = in[a * step_];
      const T y = in[b * step_];
      const bool less = order_ == Order::kAscending ? smaller(x, y) : smaller(y, x);
      if (less) return true;
      const bool more = order_ == Order::kAscending ? smaller(y, x) : smaller(x, y);
      return !more && a < b;
    };
    const auto middle = at_.begin() + static_cast<std::ptrdiff_t>(count_);
    if (count_ < n_) std::nth_element(at_.begin(), middle, at_.end(), before);
    std::sort(at_.begin(), middle, before);
    for (int64_t k = 0; k < count_; ++k) {
      indices[k * step_] = at_[static_cast<size_t>(k)];
      values[k * step_] = in[at_[static_cast<size_t>(k)] * step_];
    }
  }

 private:
  static bool smaller(T x, T y) {
    if constexpr (std::is_floating_point_v<T>) return x < y || (y != y && x == x);
    return x < y;
  }

  int64_t n_;
  int64_t step_;
  Order order_;
  int64_t count_;
  std::vector<int64_t> at_;
};

}  // namespace

Sorted sort(const Tensor& x, int dim, Order order, int64_t count) {
  // 16-bit types convert to f32 and back without loss.
  const bool narrow = is_floating(x.dtype()) && size_of(x.dtype()) == 2;
  const Tensor in = (narrow ? x.to(DType::kFloat32) : x).contiguous();
  Shape shape = x.shape();
  shape[dim] = count;
  const Tensor values = Tensor::empty(shape, in.dtype());
  const Tensor indices = Tensor::empty(shape, DType::kInt64);
  if (values.numel() == 0) return {values.to(x.dtype()), indices};
  const int64_t n = x.size(dim);
  int64_t inner = 1;
  for (int d = dim + 1; d < x.ndim(); ++d) inner *= x.size(d);
  const int64_t columns = values.numel() / count;
  visit_dtype(in.dtype(), [&](auto t) {
    using T = decltype(t);
    if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      const T* from = in.data<T>();
      T* to = values.data<T>();
      auto* at = indices.data<int64_t>();
      parallel_rows(columns, n, [&](int64_t begin, int64_t end) {
        Sorter<T> sorter(n, inner, order, count);
        for (int64_t c = begin; c < end; ++c) {
          const int64_t o = c / inner;
          const int64_t i = c % inner;
          const int64_t first = o * count * inner + i;
          sorter.run(from + o * n * inner + i, to + first, at + first);
        }
      });
    } else {
      refuse_dtype("sort", x.dtype(), "numbers");
    }
  });
  return {values.to(x.dtype()), indices};
}

}  // namespace dtensor::cpu
