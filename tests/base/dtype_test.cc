#include "dtensor/base/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "dtensor/base/error.h"

namespace dtensor {
namespace {

TEST(DType, HasNamesAndSizes) {
  for (int i = 0; i < kDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(name_of(dtype)), dtype);
    EXPECT_EQ(size_of(dtype),
              visit_dtype(dtype, [](auto zero) { return static_cast<int64_t>(sizeof(zero)); }));
    visit_dtype(dtype, [&](auto zero) { EXPECT_EQ(kDTypeOf<decltype(zero)>, dtype); });
  }
  EXPECT_TRUE(is_floating(DType::kBFloat16));
  EXPECT_FALSE(is_floating(DType::kInt8));
  try {
    dtype_from_name("float8");
    FAIL();
  } catch (const ArgumentError& e) {
    EXPECT_NE(std::string(e.what()).find("bf16"), std::string::npos);
  }
}

// The value of a 16-bit pattern with `fraction` stored bits, from the definition of IEEE 754.
double value_of(uint32_t bits, int exponent_bits, int fraction_bits) {
  const uint32_t fraction = bits & ((1U << fraction_bits) - 1);
  const int exponent = static_cast<int>((bits >> fraction_bits) & ((1U << exponent_bits) - 1));
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = (bits >> 15) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp((1U << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

template <class T>
void check_all_patterns(int exponent_bits, int fraction_bits) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    T half;
    half.bits = static_cast<uint16_t>(bits);
    const auto as_float = static_cast<float>(half);
    const double want = value_of(bits, exponent_bits, fraction_bits);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(as_float)) << bits;
      EXPECT_TRUE(std::isnan(static_cast<float>(T(as_float)))) << bits;
      continue;
    }
    EXPECT_EQ(static_cast<double>(as_float), want) << bits;
    EXPECT_EQ(std::signbit(as_float), std::signbit(want)) << bits;
    EXPECT_EQ(T(as_float).bits, bits);
  }
}

// For every two neighbours a, b: just below their middle rounds to a, just above to b, the middle
// to the even one.
template <class T>
void check_rounding(uint16_t infinity) {
  for (uint16_t bits = 0; bits + 1 < infinity; ++bits) {
    T a;
    T b;
    a.bits = bits;
    b.bits = static_cast<uint16_t>(bits + 1);
    const double low = static_cast<float>(a);
    const double high = static_cast<float>(b);
    const auto middle = static_cast<float>((low + high) / 2);
    if (static_cast<double>(middle) != (low + high) / 2) continue;  // below float's own subnormals
    const uint16_t even = bits % 2 == 0 ? a.bits : b.bits;
    EXPECT_EQ(T(middle).bits, even) << bits;
    EXPECT_EQ(T(-middle).bits, even | 0x8000) << bits;
    EXPECT_EQ(T(std::nextafter(middle, 0.0F)).bits, a.bits) << bits;
    EXPECT_EQ(T(std::nextafter(middle, std::numeric_limits<float>::infinity())).bits, b.bits)
        << bits;
  }
}

TEST(BFloat16, ConvertsAllPatterns) { check_all_patterns<BFloat16>(8, 7); }
TEST(BFloat16, RoundsToNearestEven) { check_rounding<BFloat16>(0x7f80); }
TEST(Float16, ConvertsAllPatterns) { check_all_patterns<Float16>(5, 10); }
TEST(Float16, RoundsToNearestEven) { check_rounding<Float16>(0x7c00); }

TEST(Float16, OverflowsToInfinityFromHalfAStepAboveTheLargest) {
  EXPECT_EQ(Float16(65504.0F).bits, 0x7bff);
  EXPECT_EQ(Float16(std::nextafter(65520.0F, 0.0F)).bits, 0x7bff);
  EXPECT_EQ(Float16(65520.0F).bits, 0x7c00);
  EXPECT_EQ(Float16(-1e30F).bits, 0xfc00);
  EXPECT_EQ(Float16(std::numeric_limits<float>::infinity()).bits, 0x7c00);
  EXPECT_EQ(Float16(1e-30F).bits, 0);
  EXPECT_EQ(Float16(-1e-30F).bits, 0x8000);
}

TEST(BFloat16, KeepsInfinityAndSignalsOfNaN) {
  EXPECT_EQ(BFloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(BFloat16(-std::numeric_limits<float>::infinity()).bits, 0xff80);
  // A NaN whose payload lies only in the lower half must not become infinity.
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::bit_cast<float>(0x7f800001U)))));
  EXPECT_EQ(BFloat16(0.1F).bits, 0x3dcd);
}

}  // namespace
}  // namespace dtensor
