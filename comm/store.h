// Store: keys and values by which ranks find each other, before there is a Comm.

#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "dtensor/base/deadline.h"

namespace dtensor::comm {

class Store {
 public:
  virtual ~Store() = default;
  // Sets a key once; Error where it holds another value.
  virtual void set(std::string_view key, std::string_view value) = 0;
  // Waits for the key; Error naming it when the deadline passes.
  virtual std::string get(std::string_view key, Deadline deadline) = 0;
  virtual bool has(std::string_view key) = 0;
};

// Threads of one process.
std::shared_ptr<Store> make_memory_store();
// Processes that see one directory. Files are named by a hash of the key.
std::shared_ptr<Store> make_file_store(const std::string& directory);
// Served over TCP by the process that passes serve = true (rank 0), until that handle is gone.
// Port 0 with serve: taken from the kernel, see tcp_store_port.
struct TcpStoreOptions {
  std::string host = "127.0.0.1";
  int port = 0;
  bool serve = false;
  Deadline deadline = {};
};
std::shared_ptr<Store> make_tcp_store(const TcpStoreOptions& options);
int tcp_store_port(const Store& store);

}  // namespace dtensor::comm
