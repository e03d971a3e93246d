// The Backend that stands over a Transport and a Control: the collectives of this folder, the
// comparison of calls, and the search for a culprit. A backend package writes the two seams and
// calls this.

#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "dtensor/comm/backend.h"
#include "dtensor/comm/control.h"
#include "dtensor/comm/device_mover.h"
#include "dtensor/comm/shm/neighbours.h"
#include "dtensor/comm/transport.h"

namespace dtensor::comm {

struct WorldParts {
  std::shared_ptr<Transport> transport;
  std::shared_ptr<Control> control;
  std::string backend;  // "gloo", for Capabilities
  std::string version;  // of the library beneath
  std::string run_id;   // agreed at rendezvous, equal on all ranks
  int64_t generation = 0;
  // The ranks of this host, where they share memory: Comms of them alone do not use the transport.
  std::shared_ptr<shm::Neighbours> neighbours = {};
  // Replaces the size in the table of choice.h up to which all-reduces take one step.
  std::optional<int64_t> one_step_bytes = {};
  // For buffers that are not on the CPU; none: they are refused. Then the first call of every Comm
  // also connects its ranks by it.
  std::shared_ptr<DeviceMover> device = {};
  bool takes_cpu = true;
  // A wait longer than this asks the others where they are, again and again.
  std::chrono::milliseconds stall{500};
  // How long they may take to answer, and to agree on a verdict.
  std::chrono::milliseconds answer{2000};
};

// Control and Transport are let go when the last Comm over them is gone.
std::shared_ptr<Backend> make_transport_backend(WorldParts parts);

}  // namespace dtensor::comm
