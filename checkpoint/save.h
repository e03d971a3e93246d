// Saving: every rank writes what it owns, and says so in a commit record. Nobody is asked.

#pragma once

#include <cstdint>
#include <string>

#include "dtensor/checkpoint/state.h"

namespace dtensor::checkpoint {

// Writes an attempt, step-<step>.<id>, into `run_dir`, which is made where it is not there. Every
// rank of the root Comm calls it, those outside the mesh too; no message is sent, no barrier met.
// `step` is the number of updates done. When it returns, this rank's part is on the disk; the
// checkpoint is complete once every rank's is.
// PlacementError for a Partial tensor and ArgumentError for a bad name: nothing was written then.
// CheckpointError naming the file and the system's reason; earlier steps are untouched.
void save(const std::string& run_dir, int64_t step, const State& state);

}  // namespace dtensor::checkpoint
