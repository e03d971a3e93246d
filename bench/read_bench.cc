// How fast two threads read memory: the ceiling of generation, which reads every weight once per
// token.
//   bazel run //bench:read_bench
// Prints {"gb_s": ...}: the median of nine passes over 512 MiB.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "dtensor/base/context.h"
#include "dtensor/base/thread_pool.h"
#include "dtensor/ops/cpu/simd.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor {
namespace {

float sum_of(const float* x, int64_t n) {
  float total = 0;
  cpu::simd::dispatch([&](auto isa) __attribute__((always_inline)) {
    constexpr int kLanes = decltype(isa)::template lanes<float>();
    cpu::simd::Vec<float, kLanes> sum[4] = {};
    for (int64_t i = 0; i < n; i += 4 * kLanes) {
      for (int l = 0; l < 4; ++l) sum[l] += cpu::simd::load<kLanes>(x + i + l * kLanes);
    }
    total = cpu::simd::sum_lanes<kLanes, float>((sum[0] + sum[1]) + (sum[2] + sum[3]));
  });
  return total;
}

double median_gb_s() {
  constexpr int64_t kCount = int64_t{128} << 20;  // a multiple of what one turn of the loop reads
  const Tensor x = Tensor::full({kCount}, 1.0);
  ThreadPool pool(2);
  std::vector<double> gb_s;
  volatile float sink = 0;
  for (int i = 0; i < 9; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    pool.parallel_for(kCount, kCount / 2, [&](int64_t from, int64_t to) {
      sink = sink + sum_of(x.data<float>() + from, to - from);
    });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    gb_s.push_back(static_cast<double>(x.size_bytes()) / took.count() / 1e9);
  }
  std::ranges::sort(gb_s);
  return gb_s[gb_s.size() / 2];
}

}  // namespace
}  // namespace dtensor

int main() { std::printf("{\"gb_s\": %.3f}\n", dtensor::median_gb_s()); }
