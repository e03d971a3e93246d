#include "dtensor/ops/cpu/simd.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "dtensor/base/error.h"

namespace dtensor::cpu::simd {
namespace {

Level of_machine() {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return avx2 && avx512 ? Level::kAvx512 : avx2 ? Level::kAvx2 : Level::kBaseline;
#else
  return Level::kBaseline;
#endif
}

Level at_most() {
  const char* text = std::getenv("DTENSOR_SIMD");  // NOLINT(concurrency-mt-unsafe): once
  const std::string_view name = text == nullptr ? "avx512" : text;
  if (name == "avx512") return Level::kAvx512;
  if (name == "avx2") return Level::kAvx2;
  if (name == "baseline") return Level::kBaseline;
  throw ArgumentError("DTENSOR_SIMD is \"" + std::string(name) +
                      "\"; give baseline, avx2 or avx512, or leave it out");
}

}  // namespace

Level level() {
  static const Level chosen = std::min(of_machine(), at_most());
  return chosen;
}

}  // namespace dtensor::cpu::simd
