// DType: the element types, and the two 16-bit floating types that C++20 lacks.

#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "dtensor/base/language.h"

namespace dtensor {

enum class DType : uint8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kInt8,
  kUInt8,
  kInt32,
  kInt64,
  kBool,
};
inline constexpr int kDTypes = 9;

// Bytes of one element.
constexpr int64_t size_of(DType dtype) {
  constexpr int64_t kBytes[kDTypes] = {4, 8, 2, 2, 1, 1, 4, 8, 1};
  return kBytes[static_cast<int>(dtype)];
}

// "f32", "f64", "f16", "bf16", "i8", "u8", "i32", "i64", "bool".
constexpr std::string_view name_of(DType dtype) {
  constexpr std::string_view kNames[kDTypes] = {"f32", "f64", "f16", "bf16", "i8",
                                                "u8",  "i32", "i64", "bool"};
  return kNames[static_cast<int>(dtype)];
}

// The dtype with this name; ArgumentError naming the known ones otherwise.
DType dtype_from_name(std::string_view name);

constexpr bool is_floating(DType dtype) { return static_cast<int>(dtype) <= 3; }

// The upper half of a float32. Conversion rounds to nearest, ties to even; NaN stays NaN.
struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) {
    const auto u = std::bit_cast<uint32_t>(value);
    const bool is_nan = (u & 0x7fffffffU) > 0x7f800000U;
    bits = is_nan ? static_cast<uint16_t>((u >> 16) | 0x40U)
                  : static_cast<uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
  friend bool operator==(BFloat16, BFloat16) = default;  // of bits
};

// IEEE binary16. Conversion rounds to nearest, ties to even.
struct Float16 {
  uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value);
  explicit operator float() const;
  friend bool operator==(Float16, Float16) = default;  // of bits
};

// DTypeOf<float>::value is DType::kFloat32, and so on.
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kFloat32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kFloat64;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::kFloat16;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::kBFloat16;
};
template <>
struct DTypeOf<int8_t> {
  static constexpr DType value = DType::kInt8;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kUInt8;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kInt32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kInt64;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::kBool;
};
template <class T>
inline constexpr DType kDTypeOf = DTypeOf<T>::value;

// Calls f(T{}) with the C++ type of `dtype`.
template <class F>
decltype(auto) visit_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat32:
      return f(float{});
    case DType::kFloat64:
      return f(double{});
    case DType::kFloat16:
      return f(Float16{});
    case DType::kBFloat16:
      return f(BFloat16{});
    case DType::kInt8:
      return f(int8_t{});
    case DType::kUInt8:
      return f(uint8_t{});
    case DType::kInt32:
      return f(int32_t{});
    case DType::kInt64:
      return f(int64_t{});
    case DType::kBool:
      break;
  }
  return f(bool{});
}

}  // namespace dtensor
