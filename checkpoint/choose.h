// Which attempt is loaded: rank 0 looks and tells the others. Internal.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dtensor/checkpoint/attempt.h"
#include "dtensor/checkpoint/contents.h"
#include "dtensor/checkpoint/world.h"

namespace dtensor::checkpoint {

struct Choice {
  std::optional<Attempt> attempt;        // none on a first start
  std::vector<std::string> passed_over;  // on rank 0: newer ones with the reason
  std::optional<Contents> contents;      // of the attempt, where this rank has looked already
};

// The newest complete attempt, of `step` where that is given. With `deep` its data is read too,
// each rank reading some of its files, and a damaged one is passed over. A collective of the world.
// CheckpointError on every rank where a step was named and no complete attempt is of it, and where
// rank 0 sees none at all but another rank does.
Choice choose_attempt(const World& world, const std::string& run_dir, std::optional<int64_t> step,
                      bool deep);

// What to do where the data of an attempt turned out to be damaged: ". Load an older step: ...".
// Does not throw.
std::string advice(const std::string& run_dir, const Attempt& damaged);

}  // namespace dtensor::checkpoint
