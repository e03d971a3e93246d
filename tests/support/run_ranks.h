// run_ranks: runs a function on every rank of a world; ranks are threads of this process, each with
// its own Context. A rank that throws ends the world, so that the others do not wait for it.

#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "dtensor/comm/comm.h"
#include "dtensor/comm/local/local.h"

namespace dtensor::testing {

using RankFunction = std::function<void(comm::Comm& comm)>;

struct RunOptions {
  // After this the world is aborted; a rank that then does not return ends the process.
  std::chrono::seconds limit{120};
};

// Over `local`. Throws the first exception of any rank.
void run_ranks(int size, const RankFunction& f, const comm::local::WorldOptions& world = {},
               RunOptions options = {});

// Over Comms that some backend made, in rank order. Each is destroyed by its own thread.
void run_ranks(std::vector<std::unique_ptr<comm::Comm>> world, const RankFunction& f,
               RunOptions options = {});

}  // namespace dtensor::testing
