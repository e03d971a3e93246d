// Worker: this rank's end of UCX, with a connection to every other rank. UCX moves data only while
// it is called: whoever waits calls it, and a thread of the Worker does where what was sent is not
// yet out and nobody waits.

#pragma once

#include <ucp/api/ucp.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/base/deadline.h"
#include "dtensor/comm/ucx/operation.h"

namespace dtensor::comm::ucx {

struct WorkerOptions {
  int size = 1;
  std::string transports = "self,tcp";  // as UCX names them
  std::string device = {};              // the network interface; empty: all
};

// Thread-safe. Throws Error where UCX cannot do what it should.
class Worker {
 public:
  explicit Worker(const WorkerOptions& options);
  // Bounded. UCX would end the process if it were closed while messages to a dead rank are stuck:
  // then what it has is kept until the process ends.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  std::string address() const;
  void connect(int peer, const std::string& address);

  // Waits until the connections are made on this side, calling UCX; false at the deadline.
  bool settle(Deadline deadline);

  Operation* send(int peer, uint64_t tag, const void* data, int64_t bytes);
  Operation* receive(uint64_t tag, void* data, int64_t bytes);
  // Cancels what is pending: afterwards its memory is not touched, and `op` is not valid.
  void release(Operation* op);

  // Lets UCX work for a moment. False where there was nothing to do, or another thread is at it.
  bool progress();

 private:
  // UCX's handles, and the Operations that it may point to.
  struct Handles {
    ucp_context_h context = nullptr;
    ucp_worker_h worker = nullptr;
    ucp_datatype_t datatype = 0;
    std::vector<ucp_ep_h> peers;  // null where not connected
    Operations operations;
    ~Handles();
  };

  void tend();
  bool empty_out();

  std::unique_ptr<Handles> handles_;
  std::mutex mutex_;  // guards what handles_ points to

  // For tend(): how much was sent so far; whether its thread is to be woken.
  std::atomic<int64_t> sent_{0};
  std::atomic<bool> asleep_{false};
  std::mutex tend_mutex_;
  std::condition_variable tend_changed_;
  bool stop_ = false;  // guarded by tend_mutex_
  std::thread tender_;
};

}  // namespace dtensor::comm::ucx
