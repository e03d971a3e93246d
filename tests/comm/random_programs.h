// Random programs: calls of all kinds on a world and groups of it, ragged, empty, of mixed dtypes,
// in and out of place, in memory of all kinds, several in flight; each result is compared with a
// serial model. All ranks make the same program from its seed.

#pragma once

#include <cstdint>

#include "dtensor/comm/comm.h"

namespace dtensor::testing {

struct ProgramOptions {
  int steps = 12;
  int64_t most = 400'000;  // elements of a buffer, rarely
};

// Called by every rank of the world. Throws Error naming seed and step where a result is wrong.
void run_random_program(comm::Comm& world, uint64_t seed, const ProgramOptions& options = {});

}  // namespace dtensor::testing
