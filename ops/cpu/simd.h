// Vectors for kernels: fixed-width values that +, -, *, / and comparisons work on (the compilers'
// vector extension), and the choice of the instruction set at run time.
//   simd::dispatch([&](auto isa) __attribute__((always_inline)) { ... });
// runs the lambda compiled for the widest set that this machine has; everything in it is inlined.
// One source for every set: V = simd::Vec<float, isa.template lanes<float>()>.
// T is the type in memory, A = simd::Compute<T> the one computed in: f32 for bf16, and unsigned for
// integers, so that they wrap.

#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "dtensor/base/dtype.h"

// How a vector is returned differs between sets; here all such calls are inlined.
#pragma GCC diagnostic ignored "-Wpsabi"

#define DTENSOR_INLINE [[gnu::always_inline]] inline

namespace dtensor::cpu::simd {

template <int kBytes>
struct Isa {
  template <class A>
  static constexpr int lanes() {
    return kBytes / static_cast<int>(sizeof(A));
  }
};

// Of this process: the widest set that the machine has, and at most DTENSOR_SIMD (baseline, avx2 or
// avx512), which is read once. ArgumentError where that is another text.
enum class Level { kBaseline, kAvx2, kAvx512 };
Level level();

#if defined(__x86_64__)
template <class F>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"), gnu::flatten, gnu::noinline]] void
run_avx512(const F& f) {
  f(Isa<64>{});
}
template <class F>
[[gnu::target("avx2,fma"), gnu::flatten, gnu::noinline]] void run_avx2(const F& f) {
  f(Isa<32>{});
}
#endif
template <class F>
[[gnu::flatten, gnu::noinline]] void run_baseline(const F& f) {
  f(Isa<16>{});
}

template <class F>
void dispatch(const F& f) {
#if defined(__x86_64__)
  if (level() == Level::kAvx512) return run_avx512(f);
  if (level() == Level::kAvx2) return run_avx2(f);
#endif
  run_baseline(f);
}

template <class A, int N>
struct VecOf {
  typedef A type __attribute__((vector_size(sizeof(A) * N)));
};
template <class A, int N>
using Vec = typename VecOf<A, N>::type;

template <class T>
struct ComputeOf {
  using type = T;
};
template <>
struct ComputeOf<BFloat16> {
  using type = float;
};
template <>
struct ComputeOf<int32_t> {
  using type = uint32_t;
};
template <>
struct ComputeOf<int64_t> {
  using type = uint64_t;
};
template <class T>
using Compute = typename ComputeOf<T>::type;

// The vector of A over which `Isa` works.
template <class IsaType, class A>
using V = Vec<A, IsaType::template lanes<A>()>;

template <class A, int N>
DTENSOR_INLINE Vec<A, N> splat(A value) {
  return Vec<A, N>{} + value;
}

// ---- Memory
template <int N, class T>
DTENSOR_INLINE Vec<Compute<T>, N> load(const T* p) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    Vec<uint16_t, N> h;
    std::memcpy(&h, p, sizeof(h));
    const auto wide = __builtin_convertvector(h, Vec<uint32_t, N>) << 16;
    return std::bit_cast<Vec<float, N>>(wide);
  } else {
    Vec<Compute<T>, N> v;
    std::memcpy(&v, p, sizeof(v));
    return v;
  }
}

template <int N, class T>
DTENSOR_INLINE void store(T* p, const Vec<Compute<T>, N>& v) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    const auto u = std::bit_cast<Vec<uint32_t, N>>(v);
    const auto rounded = (u + 0x7fffU + ((u >> 16) & 1U)) >> 16;
    const auto wide = v != v ? ((u >> 16) | 0x40U) : rounded;
    const auto h = __builtin_convertvector(wide, Vec<uint16_t, N>);
    std::memcpy(static_cast<void*>(p), &h, sizeof(h));
  } else {
    std::memcpy(p, &v, sizeof(v));
  }
}

// The first `count` lanes; zeros in the others.
template <int N, class T>
DTENSOR_INLINE Vec<Compute<T>, N> load_part(const T* p, int64_t count) {
  if (count == N) return load<N>(p);
  T lanes[N] = {};
  for (int64_t i = 0; i < count; ++i) lanes[i] = p[i];
  return load<N>(lanes);
}
template <int N, class T>
DTENSOR_INLINE void store_part(T* p, const Vec<Compute<T>, N>& v, int64_t count) {
  if (count == N) return store<N>(p, v);
  T lanes[N];
  store<N>(lanes, v);
  for (int64_t i = 0; i < count; ++i) p[i] = lanes[i];
}

// f(i, lanes) for i = 0, N, 2N, ... below n, with the lanes that there are; for load_part.
template <int N, class F>
DTENSOR_INLINE void for_lanes(int64_t n, const F& f) {
  int64_t i = 0;
  for (; i + N <= n; i += N) f(i, std::integral_constant<int64_t, N>{});
  if (i < n) f(i, n - i);
}

// ---- Across lanes, in a fixed order
template <int N, class A>
DTENSOR_INLINE A sum_lanes(const Vec<A, N>& v) {
  A a[N];
  std::memcpy(a, &v, sizeof(v));
  for (int w = N / 2; w > 0; w /= 2) {
    for (int i = 0; i < w; ++i) a[i] += a[i + w];
  }
  return a[0];
}

// The larger of two, or of two vectors' lanes; `a` where b is NaN.
template <class W>
DTENSOR_INLINE W larger(const W& a, const W& b) {
  return b > a ? b : a;
}

// `a`, or NaN where b is NaN. (The select is of a constant: GCC would join two selects of b into
// one by a mask that it then takes lane by lane.)
template <class W>
DTENSOR_INLINE W keep_nan(const W& a, const W& b) {
  const W nan = W{} + std::numeric_limits<float>::quiet_NaN();
  return b != b ? nan : a;
}

template <int N, class A>
DTENSOR_INLINE A max_lanes(const Vec<A, N>& v) {
  A m = v[0];
  for (int i = 1; i < N; ++i) m = larger(m, v[i]);
  return m;
}

// ---- exp
// With n = round(x / ln 2) and r = x - n ln 2, exp(x) = 2^n exp(r); exp(r) by the polynomial of
// Cephes' expf (Moshier, "Methods and programs for mathematical functions", 1989). 2^n is applied
// in two halves, so that results in the denormal range come out, and overflow gives inf.
template <int N>
DTENSOR_INLINE Vec<float, N> exp(const Vec<float, N>& argument) {
  using F = Vec<float, N>;
  using I = Vec<int32_t, N>;
  const F high = F{} + 89.0F;
  const F low = F{} - 105.0F;
  F x = argument > high ? high : argument;  // NaN passes both
  x = x < low ? low : x;
  constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  const F shifted = x * 1.44269504088896341F + kMagic;
  const F n = shifted - kMagic;
  const I k = std::bit_cast<I>(shifted) - std::bit_cast<int32_t>(kMagic);
  const F r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  F p = r * 1.9875691500e-4F + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = (p * (r * r) + r) + 1.0F;
  const I half = k >> 1;
  const F scale1 = std::bit_cast<F>((half + 127) << 23);
  const F scale2 = std::bit_cast<F>((k - half + 127) << 23);
  return p * scale1 * scale2;
}
template <int N>
DTENSOR_INLINE Vec<double, N> exp(const Vec<double, N>& argument) {
  Vec<double, N> x = argument;
  for (int i = 0; i < N; ++i) x[i] = std::exp(x[i]);
  return x;
}

// ---- sqrt
// Newton's iteration for 1 / sqrt(x) from the exponent's half, and one for sqrt(x): within 1 ulp;
// for denormal x within a factor of 4. (GCC has no vector square root without intrinsics, and those
// need one source for each instruction set.)
template <int N>
DTENSOR_INLINE Vec<float, N> sqrt(const Vec<float, N>& x) {
  using F = Vec<float, N>;
  using I = Vec<int32_t, N>;
  using U = Vec<uint32_t, N>;  // wraps for -0
  F y = std::bit_cast<F>(U(0x5f375a86U - std::bit_cast<U>(I(std::bit_cast<I>(x) >> 1))));
  y = y * (1.5F - (0.5F * x * y) * y);
  y = y * (1.5F - (0.5F * x * y) * y);
  const F s = x * y;
  const F root = s + 0.5F * y * (x - s * s);
  return x <= std::numeric_limits<float>::max() ? root : x;  // inf and NaN
}
template <int N>
DTENSOR_INLINE Vec<double, N> sqrt(const Vec<double, N>& argument) {
  Vec<double, N> x = argument;
  for (int i = 0; i < N; ++i) x[i] = std::sqrt(x[i]);
  return x;
}

}  // namespace dtensor::cpu::simd
