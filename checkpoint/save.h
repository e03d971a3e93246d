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

// The same, but returns once this rank's part is copied: the values are those of the call, and
// training may go on while a thread writes. At most one save of a rank is under way: the next save
// of either kind, and wait_for_save, wait for it. Where it failed they throw its error, and the
// next save has then not begun.
void save_async(const std::string& run_dir, int64_t step, const State& state);
// Returns when the last save_async of this Context, if any, is on the disk.
void wait_for_save();

}  // namespace dtensor::checkpoint
