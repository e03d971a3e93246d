// The Transport over UCX: tagged messages, by TCP or whatever of UCX's transports is named.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "dtensor/base/deadline.h"
#include "dtensor/comm/secret.h"
#include "dtensor/comm/store.h"
#include "dtensor/comm/transport.h"

namespace dtensor::comm::ucx {

struct UcxTransportOptions {
  int rank = 0;
  int size = 1;
  std::string transports = "self,tcp";        // as UCX names them
  std::string address = "127.0.0.1";          // one of this machine, numeric: TCP goes by it
  std::string token = {};                     // equal on all ranks; a stranger does not know it
  std::string key_prefix = {};                // of the keys in the store
  std::shared_ptr<const Secret> secret = {};  // that all ranks know; may be none
  int64_t max_message_bytes = 1 << 20;
  Deadline deadline = {};
};

// Connects to every other rank, which calls this too. The tags of all messages depend on a random
// number of this world, from the store and the secret: who knows a rank's address and not that
// number sends nothing that a rank takes for a message of another one. Error naming the rank that
// did not come by the deadline, or what UCX lacks. The store lives as long as the connections:
// where this rank serves it, a late process must be told that it is late.
std::shared_ptr<Transport> make_ucx_transport(std::shared_ptr<Store> store,
                                              const UcxTransportOptions& options);

// The version of the UCX that runs.
std::string ucx_version();

}  // namespace dtensor::comm::ucx
