// Random programs: calls of all kinds on a world and groups of it, ragged, empty, of mixed dtypes,
// in and out of place, in memory of all kinds, several in flight; each result is compared with a
// serial model. All ranks make the same program from its seed.

#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "dtensor/comm/comm.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::testing {

struct ProgramOptions {
  int steps = 12;
  int64_t most = 400'000;  // elements of a buffer, rarely
};

// Called by every rank of the world. Throws Error naming seed and step where a result is wrong.
void run_random_program(comm::Comm& world, uint64_t seed, const ProgramOptions& options = {});

// Programs in turn on a world: `programs` of them, or what the environment says.
//   by hand: DTENSOR_PROGRAMS=2000
inline void run_random_programs(std::vector<std::unique_ptr<comm::Comm>> world, int programs) {
  const char* text = std::getenv("DTENSOR_PROGRAMS");
  const int n = text == nullptr ? programs : std::atoi(text);
  run_ranks(std::move(world),
            [n](comm::Comm& comm) {
              for (int k = 0; k < n; ++k) {
                run_random_program(comm, static_cast<uint64_t>(1000 * comm.size() + k));
              }
              comm.shutdown();
            },
            {.limit = std::chrono::seconds(3000)});
}

}  // namespace dtensor::testing
