#include "dtensor/base/philox.h"

#include <cmath>
#include <numbers>

namespace dtensor {

PhiloxBlock philox(PhiloxBlock x, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53U} * x[0];
    const uint64_t b = uint64_t{0xCD9E8D57U} * x[2];
    x = {static_cast<uint32_t>(b >> 32) ^ x[1] ^ key[0], static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ x[3] ^ key[1], static_cast<uint32_t>(a)};
    key = {key[0] + 0x9E3779B9U, key[1] + 0xBB67AE85U};
  }
  return x;
}

PhiloxBlock philox_at(uint64_t seed, uint64_t stream, uint64_t index) {
  return philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                 static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

float philox_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
  return static_cast<float>(philox_at(seed, stream, index)[0] >> 8) * 0x1p-24F;
}

float philox_normal(uint64_t seed, uint64_t stream, uint64_t index) {
  const PhiloxBlock words = philox_at(seed, stream, index);
  const double u = (words[0] + 1.0) * 0x1p-32;  // (0, 1]: its logarithm is finite
  const double v = words[1] * 0x1p-32;
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v));
}

uint64_t stream_of(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

}  // namespace dtensor
