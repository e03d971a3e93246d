// One input of the fuzzer, as a test replays it.

#pragma once

#include <cstdint>
#include <span>

namespace dtensor {

// Aborts where a reader breaks a promise. Throws nothing.
void fuzz_one(std::span<const uint8_t> input);

}  // namespace dtensor
