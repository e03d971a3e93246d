// The backend `local`: ranks that are threads of one process. For tests, for a world of one, and
// for programs that keep their ranks in one process.

#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/comm/comm.h"
#include "dtensor/comm/local/local_control.h"
#include "dtensor/comm/transport.h"

namespace dtensor::comm::local {

struct WorldOptions {
  std::string name = "world";
  std::string run_id = {};  // made from the time and a random part where empty
  int64_t generation = 0;
  int64_t max_message_bytes = INT64_MAX;
  // See WorldParts in dtensor/comm/algorithms/transport_comm.h.
  std::chrono::milliseconds stall{500};
  std::chrono::milliseconds answer{2000};
  // For tests of failures: the Board of the world, which must have the same size, and a Transport
  // to put in front of a rank's.
  std::shared_ptr<Board> board = {};
  std::function<std::shared_ptr<Transport>(std::shared_ptr<Transport>)> wrap = {};
};

// The Comms of a whole world, in rank order; each is then used by its own thread.
std::vector<std::unique_ptr<Comm>> make_world(int size, const WorldOptions& options = {});

// Makes `local://?name=NAME&rank=R&size=N` known to comm::create: threads that give the same name
// ("world" where none is given) and generation meet.
void register_backend();

}  // namespace dtensor::comm::local
