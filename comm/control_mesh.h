// The connections of the control channel: one TCP connection per pair of processes, made at
// rendezvous. Whoever does not know the world's token, or its secret, is dropped, logged
// and delays nobody.

#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/base/deadline.h"
#include "dtensor/comm/secret.h"
#include "dtensor/comm/socket.h"
#include "dtensor/comm/store.h"

namespace dtensor::comm::internal {

struct ControlMeshOptions {
  int rank = 0;
  int size = 1;
  std::string token;       // equal on all ranks, at most 64 bytes
  std::string key_prefix;  // of the keys in the store
  Deadline deadline;
  std::shared_ptr<const Secret> secret = {};  // who connects has to know it, where there is one
};

// Connects to all other ranks, which call this too with a listener of their own; result[r] is the
// connection to rank r, false for this rank. `listener` is closed. Error naming a rank that
// did not come by the deadline.
std::vector<Fd> connect_control_mesh(Fd listener, Store& store, const ControlMeshOptions& options);

}  // namespace dtensor::comm::internal
