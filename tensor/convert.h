// convert<To>(x): one element from one element type to another, as kernels::cast does it.
// Floating results are rounded to nearest even, once. To an integer: the fraction is dropped,
// values outside its range become the nearest one, NaN becomes 0. To bool: is it not 0?

#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "dtensor/base/dtype.h"

namespace dtensor::internal {

template <class T>
inline constexpr bool kIs16Bit = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

// To float, but an inexact result gets an odd last bit: rounding it again, to 16 bits, is then the
// same as rounding the double once (Boldo and Melquiond, "Emulation of a FMA and correctly rounded
// sums", IEEE Trans. Computers 57, 2008).
inline float round_to_odd(double x) {
  const auto y = static_cast<float>(x);
  if (!std::isfinite(y) || static_cast<double>(y) == x) {
    return std::isinf(y) && !std::isinf(x) ? std::copysign(std::numeric_limits<float>::max(), y)
                                           : y;
  }
  auto bits = std::bit_cast<uint32_t>(y);
  if (std::abs(static_cast<double>(y)) > std::abs(x)) --bits;  // towards zero
  return std::bit_cast<float>(bits | 1U);
}

template <class To, class From>
To convert(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (kIs16Bit<From>) {
    return convert<To>(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From{0};
  } else if constexpr (kIs16Bit<To>) {
    if constexpr (std::is_same_v<From, float>) return To(x);
    return To(round_to_odd(static_cast<double>(x)));
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    if (std::isnan(x)) return 0;
    // 2^digits is one above the largest value; it is exact in float, the largest may not be.
    const From above = std::ldexp(From{1}, std::numeric_limits<To>::digits);
    if (x >= above) return std::numeric_limits<To>::max();
    if (x < (std::is_signed_v<To> ? -above : From{0})) return std::numeric_limits<To>::min();
    return static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace dtensor::internal
