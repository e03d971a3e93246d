// Functions of vectors beyond simd.h. f32: polynomials of Cephes' single-precision library
// (Moshier, "Methods and programs for mathematical functions", 1989), within a few ulp; f64, and
// f32 functions that are not worth a polynomial: the C library's, lane by lane.

#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "dtensor/ops/cpu/simd.h"

namespace dtensor::cpu::simd {

template <class V>
using ElementOf = std::remove_cvref_t<decltype(std::declval<V&>()[0])>;
template <class V>
inline constexpr int kLanesIn = sizeof(V) / sizeof(ElementOf<V>);
template <class V>
inline constexpr bool kIsFloat = std::is_same_v<ElementOf<V>, float>;

// A number of the vector's element type.
template <class V>
constexpr ElementOf<V> k(double number) {
  return static_cast<ElementOf<V>>(number);
}

template <class V, class F>
DTENSOR_INLINE V each(const V& x, const F& f) {
  V y;
  for (int i = 0; i < kLanesIn<V>; ++i) y[i] = f(static_cast<ElementOf<V>>(x[i]));
  return y;
}
template <class V, class F>
DTENSOR_INLINE V each(const V& a, const V& b, const F& f) {
  V y;
  for (int i = 0; i < kLanesIn<V>; ++i) {
    y[i] = f(static_cast<ElementOf<V>>(a[i]), static_cast<ElementOf<V>>(b[i]));
  }
  return y;
}

// The coefficients from the highest power down.
template <class V, class... C>
DTENSOR_INLINE V polynomial(const V& x, ElementOf<V> first, C... rest) {
  V y = V{} + first;
  ((y = y * x + static_cast<ElementOf<V>>(rest)), ...);
  return y;
}

template <class V>
DTENSOR_INLINE V magnitude(const V& x) {
  return x < 0 ? -x : x;
}

template <class V>
DTENSOR_INLINE V exp_of(const V& x) {
  return exp<kLanesIn<V>>(x);
}

// x = m 2^e with m in [sqrt(1/2), sqrt(2)); log(m) by a polynomial in m - 1.
template <class V>
DTENSOR_INLINE V log_of(const V& x) {
  if constexpr (kIsFloat<V>) {
    using I = Vec<int32_t, kLanesIn<V>>;
    using U = Vec<uint32_t, kLanesIn<V>>;  // wraps where x < 0, which is put right at the end
    const auto tiny = x < std::numeric_limits<float>::min();
    const V scaled = tiny ? x * 8388608.0F : x;  // 2^23
    const U bits = std::bit_cast<U>(scaled);
    const I e = std::bit_cast<I>(U(bits - 0x3f3504f3U)) >> 23;
    const V n = __builtin_convertvector(e, V) - (tiny ? V{} + 23.0F : V{});
    const V r = std::bit_cast<V>(U(bits - (std::bit_cast<U>(e) << 23))) - 1.0F;
    const V z = r * r;
    const V p = polynomial(r, 7.0376836292e-2F, -1.1514610310e-1F, 1.1676998740e-1F,
                           -1.2420140846e-1F, 1.4249322787e-1F, -1.6668057665e-1F, 2.0000714765e-1F,
                           -2.4999993993e-1F, 3.3333331174e-1F);
    V y = (r * z * p - n * 2.12194440e-4F) - 0.5F * z;
    y = (r + y) + n * 0.693359375F;
    constexpr float kInf = std::numeric_limits<float>::infinity();
    y = x < kInf ? y : x;  // inf, NaN
    y = x == 0 ? V{} - kInf : y;
    return x < 0 ? V{} + std::numeric_limits<float>::quiet_NaN() : y;
  } else {
    return each(x, [](auto v) { return std::log(v); });
  }
}

// log(1 + x) for 0 <= x: what 1 + x loses of x is put back.
template <class V>
DTENSOR_INLINE V log1p_of_positive(const V& x) {
  const V w = 1 + x;
  return log_of(w) + (x - (w - 1)) / w;
}

template <class V>
DTENSOR_INLINE V sigmoid(const V& x) {
  return 1 / (1 + exp_of(V(-x)));
}

template <class V>
DTENSOR_INLINE V tanh_of(const V& x) {
  if constexpr (kIsFloat<V>) {
    const V a = magnitude(x);
    const V z = x * x;
    const V near = polynomial(z, -5.70498872745e-3F, 2.06390887954e-2F, -5.37397155531e-2F,
                              1.33314422036e-1F, -3.33332819422e-1F) *
                       z * x +
                   x;
    const V far = 1 - 2 / (exp_of(V(2 * a)) + 1);
    return a < 0.625F ? near : (x < 0 ? -far : far);
  } else {
    return each(x, [](auto v) { return std::tanh(v); });
  }
}

template <class V>
DTENSOR_INLINE V erf_of(const V& x) {
  if constexpr (kIsFloat<V>) {
    const V a = magnitude(x);
    const V z = x * x;
    const V near =
        x * polynomial(z, 7.853861353153693e-5F, -8.010193625184903e-4F, 5.188327685732524e-3F,
                       -2.685381193529856e-2F, 1.128358514861418e-1F, -3.761262582423300e-1F,
                       1.128379165726710e0F);
    const V q = 1 / (a < 1 ? V{} + 1 : a);
    const V y = q * q;
    const V p =
        a < 2 ? polynomial(y, 2.326819970068386e-2F, -1.387039388740657e-1F, 3.687424674597105e-1F,
                           -5.824733027278666e-1F, 6.210004621745983e-1F, -4.944515323274145e-1F,
                           3.404879937665872e-1F, -2.741127028184656e-1F, 5.638259427386472e-1F)
              : polynomial(y, -1.047766399936249e1F, 1.297719955372516e1F, -7.495518717768503e0F,
                           2.921019019210786e0F, -1.015265279202700e0F, 4.218463358204948e-1F,
                           -2.820767439740514e-1F, 5.641895067754075e-1F);
    const V far = 1 - exp_of(V(-z)) * q * p;
    const V both = a < 1 ? near : (x < 0 ? -far : far);
    return x != x ? x : both;
  } else {
    return each(x, [](auto v) { return std::erf(v); });
  }
}

}  // namespace dtensor::cpu::simd
