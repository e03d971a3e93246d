#include "dtensor/ops/cpu/row_product.h"

#include <bit>
#include <cstring>
#include <vector>

#include "dtensor/ops/cpu/simd.h"

namespace dtensor::cpu {
namespace {

template <int kLanes>
DTENSOR_INLINE float total(const simd::Vec<float, kLanes> (&sum)[4]) {
  return simd::sum_lanes<kLanes, float>((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

// Adjacent bf16 elements as 32-bit lanes: of each pair the first in the lower half (little endian),
// the second in the upper. Both become floats without moving between lanes.
template <int kLanes>
struct Pairs {
  simd::Vec<float, kLanes> first;
  simd::Vec<float, kLanes> second;
};
template <int kLanes>
DTENSOR_INLINE Pairs<kLanes> load_pairs(const BFloat16* p) {
  static_assert(std::endian::native == std::endian::little);
  using F = simd::Vec<float, kLanes>;
  simd::Vec<uint32_t, kLanes> u;
  std::memcpy(&u, p, sizeof(u));
  return {std::bit_cast<F>(u << 16), std::bit_cast<F>(u & 0xffff0000U)};
}

// The pairs of `a`, apart: firsts, then from `half` on seconds.
struct Split {
  std::vector<float> values;
  int64_t half = 0;

  void set(const BFloat16* a, int64_t k) {
    half = k / 2;
    values.resize(static_cast<size_t>(2 * half));
    float* first = values.data();
    float* second = first + half;
    simd::dispatch([&](auto isa) {
      constexpr int kLanes = decltype(isa)::template lanes<float>();
      int64_t i = 0;
      for (; i + kLanes <= half; i += kLanes) {
        const Pairs<kLanes> pairs = load_pairs<kLanes>(a + 2 * i);
        simd::store<kLanes>(first + i, pairs.first);
        simd::store<kLanes>(second + i, pairs.second);
      }
      for (; i < half; ++i) {
        first[i] = static_cast<float>(a[2 * i]);
        second[i] = static_cast<float>(a[2 * i + 1]);
      }
    });
  }
};

template <int kLanes>
DTENSOR_INLINE float dot(const Split& a, const BFloat16* row) {
  const float* first = a.values.data();
  const float* second = first + a.half;
  simd::Vec<float, kLanes> sum[4] = {};
  const auto add = [&](int64_t i, int at) __attribute__((always_inline)) {
    const Pairs<kLanes> pairs = load_pairs<kLanes>(row + 2 * i);
    sum[at] += simd::load<kLanes>(first + i) * pairs.first;
    sum[at + 1] += simd::load<kLanes>(second + i) * pairs.second;
  };
  int64_t i = 0;
  for (; i + 2 * kLanes <= a.half; i += 2 * kLanes) {
    add(i, 0);
    add(i + kLanes, 2);
  }
  if (i + kLanes <= a.half) {
    add(i, 0);
    i += kLanes;
  }
  float rest = 0;
  for (; i < a.half; ++i) {
    rest += first[i] * static_cast<float>(row[2 * i]);
    rest += second[i] * static_cast<float>(row[2 * i + 1]);
  }
  return total<kLanes>(sum) + rest;
}

}  // namespace

void row_product(const RowProduct<float>& p) {
  simd::dispatch([&](auto isa) {
    constexpr int kLanes = decltype(isa)::template lanes<float>();
    for (int64_t j = 0; j < p.n; ++j) {
      const float* row = p.b + j * p.pitch;
      simd::Vec<float, kLanes> sum[4] = {};
      int64_t i = 0;
      for (; i + 4 * kLanes <= p.k; i += 4 * kLanes) {
        for (int l = 0; l < 4; ++l) {
          const int64_t at = i + l * kLanes;
          sum[l] += simd::load<kLanes>(p.a + at) * simd::load<kLanes>(row + at);
        }
      }
      for (; i + kLanes <= p.k; i += kLanes) {
        sum[0] += simd::load<kLanes>(p.a + i) * simd::load<kLanes>(row + i);
      }
      float sum_all = total<kLanes>(sum);
      for (; i < p.k; ++i) sum_all += p.a[i] * row[i];
      p.c[j] = sum_all;
    }
  });
}

void row_product(const RowProduct<BFloat16>& p) {
  static thread_local Split a;
  a.set(p.a, p.k);
  simd::dispatch([&](auto isa) {
    constexpr int kLanes = decltype(isa)::template lanes<float>();
    for (int64_t j = 0; j < p.n; ++j) {
      const BFloat16* row = p.b + j * p.pitch;
      float sum = dot<kLanes>(a, row);
      if (p.k % 2 != 0) sum += static_cast<float>(p.a[p.k - 1]) * static_cast<float>(row[p.k - 1]);
      p.c[j] = BFloat16(sum);
    }
  });
}

}  // namespace dtensor::cpu
