// latest: what load would take of a run's directory, and why not something newer.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dtensor::checkpoint {

struct Latest {
  std::optional<int64_t> step = {};  // none where no checkpoint is complete
  std::string directory = {};        // of the attempt
  // Newer attempts that are not complete, the newest first: "step-20.ID: no record of rank 3 of 4".
  std::vector<std::string> passed_over = {};
};

// Any process may ask, at any time; nobody is sent a message. CheckpointError where the directory
// cannot be read.
Latest latest(const std::string& run_dir);

}  // namespace dtensor::checkpoint
