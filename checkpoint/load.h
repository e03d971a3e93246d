// Loading: any mesh and placements, from whatever mesh the checkpoint was saved on.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "dtensor/checkpoint/state.h"

namespace dtensor::checkpoint {

struct LoadOptions {
  std::optional<int64_t> step = {};  // this one; else the newest complete
  int64_t buffer_bytes = 16 << 20;   // the most that is read at once; at least one block of 1 MiB
};

// Loads into the tensors that `state` has, whatever their mesh and placements, and returns the
// step. nullopt where no step was named and the directory holds no complete checkpoint: a first
// start. Newer attempts that are not complete are named in the log, with the reason.
// A collective: every rank of the root Comm calls it. Rank 0 chooses and tells the others, and an
// error on one rank is an error on all. All metadata is checked before anything is written:
// CheckpointError listing what is missing, unexpected and mismatched. A damaged block found later
// is a CheckpointError that names file and block and what had been overwritten. A checkpoint with
// optimizer state loads into a model alone; one without does not load where an optimizer is given.
std::optional<int64_t> load(const std::string& run_dir, const State& state,
                            const LoadOptions& options = {});

}  // namespace dtensor::checkpoint
