#include "dtensor/ops/cpu/scan.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/ops/cpu/parallel.h"

namespace dtensor::cpu {
namespace {

template <class T>
void scan(const T* in, T* out, int64_t outer, int64_t n, int64_t inner, ScanFrom from) {
  parallel_rows(outer, n * inner, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      for (int64_t k = 0; k < n; ++k) {
        const int64_t row = from == ScanFrom::kFirst ? k : n - 1 - k;
        const T* x = in + (o * n + row) * inner;
        T* y = out + (o * n + row) * inner;
        if (k == 0) {
          std::copy_n(x, inner, y);
          continue;
        }
        const T* sum = from == ScanFrom::kFirst ? y - inner : y + inner;
        for (int64_t i = 0; i < inner; ++i) y[i] = static_cast<T>(sum[i] + x[i]);
      }
    }
  });
}

}  // namespace

Tensor cumsum(const Tensor& x, int dim, ScanFrom from) {
  const bool narrow = is_floating(x.dtype()) && size_of(x.dtype()) == 2;
  const Tensor in = (narrow ? x.to(DType::kFloat32) : x).contiguous();
  const Tensor out = Tensor::empty(in.shape(), in.dtype());
  if (in.numel() == 0) return out.to(x.dtype());
  int64_t outer = 1;
  int64_t inner = 1;
  for (int d = 0; d < dim; ++d) outer *= x.size(d);
  for (int d = dim + 1; d < x.ndim(); ++d) inner *= x.size(d);
  visit_number("cumsum", in.dtype(), [&](auto t) {
    using T = decltype(t);
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      scan(reinterpret_cast<const U*>(in.data<T>()), reinterpret_cast<U*>(out.data<T>()), outer,
           x.size(dim), inner, from);
    } else if constexpr (std::is_floating_point_v<T>) {
      scan(in.data<T>(), out.data<T>(), outer, x.size(dim), inner, from);
    }
  });
  return out.to(x.dtype());
}

}  // namespace dtensor::cpu
