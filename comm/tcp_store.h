// A Store served over TCP by one process (rank 0). What is not a well-formed request, or not ours,
// closes its connection, is logged and disturbs nobody: strangers may find the port. Half a request
// is dropped after 10 s, and so is who does not show in that time that it knows the secret.

#pragma once

#include <memory>
#include <string>

#include "dtensor/base/deadline.h"
#include "dtensor/comm/secret.h"
#include "dtensor/comm/store.h"

namespace dtensor::comm {

struct TcpStoreOptions {
  std::string host = "127.0.0.1";
  int port = 0;            // 0 with serve: taken from the kernel
  bool serve = false;      // this process keeps the values, until the handle is gone
  Deadline deadline = {};  // for connecting
  std::shared_ptr<const Secret> secret = {};  // who connects has to know it, where there is one
};
// Error where the port is taken, or where nobody serves by the deadline.
std::shared_ptr<Store> make_tcp_store(const TcpStoreOptions& options);
// The port of a store made by make_tcp_store.
int tcp_store_port(const Store& store);

}  // namespace dtensor::comm
