// Ranks: runs a program on every rank of a mesh, however the ranks come about:
//   no mesh            this thread alone
//   a launcher         this process is one rank (torchrun, Slurm, MPI, dtensor run)
//   a URL              likewise
//   --comm local       threads of this process
//   otherwise          processes that this one starts: itself again, under the launcher's variables
// A failure of any rank ends all; its message is printed once per rank that saw it.

#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "dtensor/mesh/device_mesh.h"

namespace dtensor::examples {

struct RanksOptions {
  std::string program;             // for messages: "train"
  std::optional<MeshLayout> mesh;  // none: no mesh
  std::string comm = "gloo";       // a scheme or a URL
  int threads = 1;                 // per rank
  std::chrono::milliseconds timeout{300'000};
};

// Returns the exit status: 0, 1 for a failure (on any rank), 128 + signal of a rank that died.
int run_ranks(const RanksOptions& options, int argc, char** argv,
              const std::function<void(const DeviceMesh&)>& rank_main);

}  // namespace dtensor::examples
