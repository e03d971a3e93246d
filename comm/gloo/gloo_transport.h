// The Transport over Gloo's TCP connections: one per pair of ranks, made once.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "dtensor/base/deadline.h"
#include "dtensor/comm/store.h"
#include "dtensor/comm/transport.h"

namespace dtensor::comm::gloo {

struct GlooTransportOptions {
  int rank = 0;
  int size = 1;
  std::string address = "127.0.0.1";  // one of this machine, numeric
  std::string token = {};             // equal on all ranks: a stranger on a port does not know it
  std::string key_prefix = {};        // of the keys in the store
  int64_t max_message_bytes = 1 << 20;
  Deadline deadline = {};
};

// Connects to every other rank, which calls this too. Error naming the rank that could not be
// reached by the deadline. The store lives as long as the connections: where this rank serves it, a
// late process must be told that it is late.
std::shared_ptr<Transport> make_gloo_transport(std::shared_ptr<Store> store,
                                               const GlooTransportOptions& options);

// The version of Gloo that was compiled in.
std::string gloo_version();

}  // namespace dtensor::comm::gloo
