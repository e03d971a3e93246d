#include "dtensor/ops/cpu/simd.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace dtensor::cpu::simd {
namespace {

// The suites of tests/ops/cpu run at each level (tests/ops/cpu/BUILD): this one tells that they do.
TEST(Simd, RunsTheSetThatWasAskedForWhereTheMachineHasIt) {
  const char* text = std::getenv("DTENSOR_SIMD");
  const std::string asked = text == nullptr ? "avx512" : text;
  int want = asked == "avx512" ? 64 : asked == "avx2" ? 32 : 16;
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx512bw")) want = std::min(want, 32);
  if (!__builtin_cpu_supports("avx2")) want = 16;
#else
  want = 16;
#endif
  int ran = 0;
  dispatch([&](auto isa) __attribute__((always_inline)) {
    ran = isa.template lanes<float>() * static_cast<int>(sizeof(float));
  });
  EXPECT_EQ(ran, want) << asked;
}

}  // namespace
}  // namespace dtensor::cpu::simd
