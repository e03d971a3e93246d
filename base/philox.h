// Philox4x32-10, the counter-based random generator of Salmon, Moraes, Dror and Shaw, "Parallel
// random numbers: as easy as 1, 2, 3", SC 2011. A number is a pure function of (seed, stream,
// index), so that every rank computes the bits of the elements that it holds, on any mesh.

#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "dtensor/base/language.h"

namespace dtensor {

using PhiloxBlock = std::array<uint32_t, 4>;

// Ten rounds over `counter` under `key`.
PhiloxBlock philox(PhiloxBlock counter, std::array<uint32_t, 2> key);

// The four words that belong to a global element index of a stream.
PhiloxBlock philox_at(uint64_t seed, uint64_t stream, uint64_t index);

// Uniform in [0, 1), a multiple of 2^-24 (first word).
float philox_uniform(uint64_t seed, uint64_t stream, uint64_t index);

// Standard normal, by Box and Muller ("A note on the generation of random normal deviates", Ann.
// Math. Stat. 29, 1958) from the first two words, in double, rounded once.
float philox_normal(uint64_t seed, uint64_t stream, uint64_t index);

// The stream of a name (of a parameter): 64-bit FNV-1a.
uint64_t stream_of(std::string_view name);

// Generator: the random state of a rank: a seed and the counter of the next unnamed stream
// (dropout). Equal on all ranks that made the same calls.
struct Generator {
  uint64_t seed = 0;
  uint64_t next_stream = 0;
  friend bool operator==(const Generator&, const Generator&) = default;
};

}  // namespace dtensor
