#include "dtensor/base/dtype.h"

#include <string>

#include "dtensor/base/error.h"

namespace dtensor {

DType dtype_from_name(std::string_view name) {
  std::string known;
  for (int i = 0; i < kDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (name_of(dtype) == name) return dtype;
    known += (i != 0 ? ", " : "") + std::string(name_of(dtype));
  }
  throw ArgumentError("dtype '" + std::string(name) + "' is not known; the dtypes are " + known);
}

Float16::Float16(float value) {
  const auto u = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((u >> 16) & 0x8000U);
  const uint32_t magnitude = u & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {  // NaN
    bits = sign | 0x7e00U;
  } else if (magnitude >= 0x47800000U) {  // at least 2^16: infinity
    bits = sign | 0x7c00U;
  } else if (magnitude < 0x38800000U) {
    // Below 2^-14 the result is subnormal: adding 0.5 aligns its last bit with float's, so that
    // the addition itself rounds to nearest even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    bits = sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(shifted) - 0x3f000000U);
  } else {
    const uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
    bits = sign | static_cast<uint16_t>((rounded - 0x38000000U) >> 13);
  }
}

Float16::operator float() const {
  const uint32_t sign = (uint32_t{bits} & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fU;
  const uint32_t fraction = bits & 0x3ffU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  const uint32_t biased = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | (biased << 23) | (fraction << 13));
}

}  // namespace dtensor
