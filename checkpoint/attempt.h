// Attempts: the directories of a run, one for every save that was begun: step-<step>.<id>.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtensor::checkpoint {

struct Attempt {
  std::string path;  // run directory and name
  std::string name;  // "step-20.20260301T101500Z-1f2e3d4c-g0-s3"
  std::string id;    // what follows the dot
  int64_t step = 0;
};

// The id that all ranks make without a message: the nonce of the run, agreed at rendezvous and
// beginning with its time, the restart number of the Comm, and the number of the save.
std::string attempt_id(std::string_view run_id, int64_t generation, int64_t save);
std::string attempt_name(int64_t step, std::string_view id);

// Was `a` begun before `b`? By time, generation and number of the save.
bool id_is_earlier(std::string_view a, std::string_view b);

// Do they have one run nonce and generation? Not where either is empty.
bool is_of_one_run(std::string_view a, std::string_view b);

// Reads a directory's name; nullopt where it is no attempt's.
std::optional<Attempt> attempt_of(const std::string& run_dir, std::string_view name);
// The attempts of a run, the newest first: by step, then by id. None where the run's directory is
// not there. CheckpointError where it cannot be read.
std::vector<Attempt> list_attempts(const std::string& run_dir);

}  // namespace dtensor::checkpoint
