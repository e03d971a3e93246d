#include "dtensor/ops/cpu/along_dims.h"

#include <string>
#include <type_traits>

#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/ops/cpu/last_dims.h"
#include "dtensor/ops/cpu/parallel.h"
#include "dtensor/ops/cpu/simd.h"

namespace dtensor::cpu {
namespace {

template <bool kLargest>
Tensor position(const char* op, const Tensor& x, std::span<const int> dims) {
  if (x.dtype() == DType::kFloat16) return position<kLargest>(op, x.to(DType::kFloat32), dims);
  const LastDims last(x, dims);
  if (last.length() == 0 && last.count() > 0) {
    throw ArgumentError(std::string(op) + ": " + describe(x) + " has no element to choose from");
  }
  const Tensor out = Tensor::empty(last.kept(), DType::kInt64);
  visit_number(op, x.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = std::conditional_t<std::is_same_v<T, BFloat16>, float, T>;
    const T* from = last.rows().data<T>();
    int64_t* to = out.data<int64_t>();
    const int64_t n = last.length();
    parallel_rows(last.count(), n, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* v = from + row * n;
        int64_t best = 0;
        A most = static_cast<A>(v[0]);
        for (int64_t i = 1; i < n && most == most; ++i) {
          const A next = static_cast<A>(v[i]);
          const bool better = kLargest ? next > most : next < most;
          if (!better && next == next) continue;
          best = i;
          most = next;
        }
        to[row] = best;
      }
    });
  });
  return out;
}

}  // namespace

Tensor argmax(const Tensor& x, std::span<const int> dims) {
  return position<true>("argmax", x, dims);
}
Tensor argmin(const Tensor& x, std::span<const int> dims) {
  return position<false>("argmin", x, dims);
}

Tensor products_of_others(const Tensor& x, std::span<const int> dims) {
  if (x.dtype() == DType::kFloat16) {
    return products_of_others(x.to(DType::kFloat32), dims).to(DType::kFloat16);
  }
  const LastDims last(x, dims);
  const Tensor out = Tensor::empty({last.count(), last.length()}, x.dtype());
  visit_floating("products_of_others", x.dtype(), [&](auto t) {
    using T = decltype(t);
    const T* from = last.rows().data<T>();
    T* to = out.data<T>();
    const int64_t n = last.length();
    parallel_rows(last.count(), n, [&](int64_t begin, int64_t end) {
      std::vector<double> before(static_cast<size_t>(n));
      for (int64_t row = begin; row < end; ++row) {
        const auto at = [&](int64_t i) {
          return static_cast<double>(static_cast<simd::Compute<T>>(from[row * n + i]));
        };
        double product = 1;
        for (int64_t i = 0; i < n; ++i) {
          before[static_cast<size_t>(i)] = product;
          product *= at(i);
        }
        product = 1;
        for (int64_t i = n - 1; i >= 0; --i) {
          const double others = before[static_cast<size_t>(i)] * product;
          to[row * n + i] = T(static_cast<simd::Compute<T>>(others));
          product *= at(i);
        }
      }
    });
  });
  return last.restore(out);
}

}  // namespace dtensor::cpu
