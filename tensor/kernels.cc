#include "dtensor/tensor/kernels.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "dtensor/tensor/convert.h"
#include "dtensor/tensor/strided.h"

namespace dtensor::kernels {
namespace {

using internal::convert;
using internal::for_each_row;
using internal::Offsets;

void check_alike(const char* kernel, const Tensor& a, const Tensor& b, bool one_dtype) {
  if (a.shape() == b.shape() && (!one_dtype || a.dtype() == b.dtype())) return;
  throw ArgumentError(std::string(kernel) + ": " + std::string(name_of(a.dtype())) +
                      to_string(a.shape()) + " and " + std::string(name_of(b.dtype())) +
                      to_string(b.shape()) + " differ");
}

// Also where there is nothing to write: other ranks have elements, and versions are to agree.
void written(const Tensor& dst) { dst.storage()->bump_version(); }

// The dim along which `src` goes by single elements while `dst` does so along dim 0: a
// transposition of the two. 0 where there is none.
int transposed_dim(const internal::MergedDims<2>& dims) {
  if (dims.step[1][0] != 1 || dims.step[0][0] == 1) return 0;
  for (int d = 1; d < dims.size.ndim(); ++d) {
    if (dims.step[0][d] == 1) return d;
  }
  return 0;
}

// By tiles of a cache line's length, so that no line of `src` is fetched again for every element.
template <class Bits>
void copy_transposed(const Bits* in, Bits* out, internal::MergedDims<2> dims, int d) {
  constexpr int64_t kTile = 16;
  const int64_t rows = std::exchange(dims.size[d], 1);
  const int64_t columns = std::exchange(dims.size[0], 1);
  const int64_t in_step = dims.step[0][0];
  const int64_t out_step = dims.step[1][d];
  for_each_row(dims, [&](const Offsets<2>& at, int64_t, const Offsets<2>&) {
    for (int64_t r = 0; r < rows; r += kTile) {
      const int64_t last_row = std::min(r + kTile, rows);
      for (int64_t c = 0; c < columns; c += kTile) {
        const int64_t n = std::min(kTile, columns - c);
        const Bits* s = in + at[0] + c * in_step;
        Bits* d = out + at[1] + c;
        for (int64_t i = r; i < last_row; ++i) {
          for (int64_t j = 0; j < n; ++j) d[i * out_step + j] = s[i + j * in_step];
        }
      }
    }
  });
}

// Elements of one size, whatever they are.
template <class Bits>
void copy_bits(const Tensor& src, const Tensor& dst) {
  const auto* in = static_cast<const Bits*>(src.raw());
  auto* out = static_cast<Bits*>(dst.raw());
  const auto dims = internal::merge_dims<2>(dst.shape(), {src.strides(), dst.strides()});
  if (const int d = transposed_dim(dims)) return copy_transposed(in, out, dims, d);
  for_each_row(dims, [&](const Offsets<2>& at, int64_t n, const Offsets<2>& step) {
    const Bits* s = in + at[0];
    Bits* d = out + at[1];
    if (step[0] == 1 && step[1] == 1) {
      std::memcpy(d, s, static_cast<size_t>(n) * sizeof(Bits));
      return;
    }
    for (int64_t k = 0; k < n; ++k) d[k * step[1]] = s[k * step[0]];
  });
}

template <class T>
T sum(T a, T b) {
  if constexpr (internal::kIs16Bit<T>) {
    return T(static_cast<float>(a) + static_cast<float>(b));
  } else if constexpr (std::is_same_v<T, bool>) {
    return a || b;
  } else if constexpr (std::is_integral_v<T>) {
    using Wrapping = std::make_unsigned_t<T>;
    return static_cast<T>(
        static_cast<Wrapping>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b)));
  } else {
    return a + b;
  }
}

// Adjacent elements.
template <class From, class To>
[[gnu::always_inline]] inline void convert_each(const From* from, To* to, int64_t n) {
  for (int64_t k = 0; k < n; ++k) to[k] = convert<To>(from[k]);
}

#if defined(__x86_64__)
template <class From, class To>
[[gnu::target("avx2")]] void convert_avx2(const From* from, To* to, int64_t n) {
  convert_each(from, to, n);
}
bool has_avx2() {
  static const bool found = __builtin_cpu_supports("avx2") != 0;
  return found;
}
#endif

// Between f32 and bf16, which training in bf16 does many times a step, by the wide vectors of the
// machine; the bits are the same with and without.
template <class From, class To>
void convert_run(const From* from, To* to, int64_t n) {
#if defined(__x86_64__)
  constexpr bool kWidens = std::is_same_v<From, BFloat16> && std::is_same_v<To, float>;
  constexpr bool kNarrows = std::is_same_v<From, float> && std::is_same_v<To, BFloat16>;
  if constexpr (kWidens || kNarrows) {
    if (has_avx2()) return convert_avx2(from, to, n);
  }
#endif
  convert_each(from, to, n);
}

}  // namespace

void copy(const Tensor& src, const Tensor& dst) {
  check_alike("copy", src, dst, true);
  written(dst);
  if (dst.numel() == 0) return;
  switch (size_of(dst.dtype())) {
    case 1:
      copy_bits<uint8_t>(src, dst);
      break;
    case 2:
      copy_bits<uint16_t>(src, dst);
      break;
    case 4:
      copy_bits<uint32_t>(src, dst);
      break;
    default:
      copy_bits<uint64_t>(src, dst);
  }
}

void fill(const Tensor& dst, double value) {
  written(dst);
  if (dst.numel() == 0) return;
  visit_dtype(dst.dtype(), [&](auto type) {
    using T = decltype(type);
    const T x = convert<T>(value);
    T* out = dst.data<T>();
    for_each_row<1>(dst.shape(), {dst.strides()},
                    [&](const Offsets<1>& at, int64_t n, const Offsets<1>& step) {
                      T* d = out + at[0];
                      if (step[0] == 1) {
                        std::fill_n(d, n, x);
                        return;
                      }
                      for (int64_t k = 0; k < n; ++k) d[k * step[0]] = x;
                    });
  });
}

void add(const Tensor& a, const Tensor& b, const Tensor& dst) {
  check_alike("add", a, b, true);
  check_alike("add", a, dst, true);
  written(dst);
  if (dst.numel() == 0) return;
  visit_dtype(dst.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* left = a.data<T>();
    const T* right = b.data<T>();
    T* out = dst.data<T>();
    for_each_row<3>(dst.shape(), {a.strides(), b.strides(), dst.strides()},
                    [&](const Offsets<3>& at, int64_t n, const Offsets<3>& step) {
                      const T* x = left + at[0];
                      const T* y = right + at[1];
                      T* d = out + at[2];
                      if (step == Offsets<3>{1, 1, 1}) {
                        for (int64_t k = 0; k < n; ++k) d[k] = sum(x[k], y[k]);
                        return;
                      }
                      for (int64_t k = 0; k < n; ++k) {
                        d[k * step[2]] = sum(x[k * step[0]], y[k * step[1]]);
                      }
                    });
  });
}

void cast(const Tensor& src, const Tensor& dst) {
  check_alike("cast", src, dst, false);
  if (src.dtype() == dst.dtype()) return copy(src, dst);
  written(dst);
  if (dst.numel() == 0) return;
  visit_dtype(src.dtype(), [&](auto from) {
    visit_dtype(dst.dtype(), [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      const From* in = src.data<From>();
      To* out = dst.data<To>();
      for_each_row<2>(dst.shape(), {src.strides(), dst.strides()},
                      [&](const Offsets<2>& at, int64_t n, const Offsets<2>& step) {
                        const From* s = in + at[0];
                        To* d = out + at[1];
                        if (step == Offsets<2>{1, 1}) return convert_run(s, d, n);
                        for (int64_t k = 0; k < n; ++k) {
                          d[k * step[1]] = convert<To>(s[k * step[0]]);
                        }
                      });
    });
  });
}

}  // namespace dtensor::kernels
