// The Transport of ranks that are threads of one process. A message is copied once, from the
// sender's memory to the receiver's, by whichever of the two comes second; a small one whose
// receiver is late is buffered, so that its sender need not wait.

#pragma once

#include <memory>
#include <vector>

#include "dtensor/comm/transport.h"

namespace dtensor::comm::local {

struct TransportOptions {
  int64_t max_message_bytes = INT64_MAX;
};

// One per rank, in rank order. They share their mailboxes and may outlive each other.
std::vector<std::shared_ptr<Transport>> make_transports(int size, TransportOptions options = {});

}  // namespace dtensor::comm::local
