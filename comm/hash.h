// 64-bit hashes that are the same on every rank and machine.

#pragma once

#include <cstdint>
#include <string_view>

#include "dtensor/base/language.h"

namespace dtensor::comm::internal {

// The finaliser of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
// generators", OOPSLA 2014) over a running state.
constexpr uint64_t mix(uint64_t state, uint64_t value) {
  uint64_t z = (state ^ value) + 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

constexpr uint64_t mix(uint64_t state, std::string_view text) {
  state = mix(state, text.size());
  for (const char c : text) state = mix(state, static_cast<unsigned char>(c));
  return state;
}

}  // namespace dtensor::comm::internal
