// Reaper: the thread that ends communicators. NCCL may take its time over that, or not come back
// where a peer is gone; who waits for data must not wait for it without a bound.

#pragma once

#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

namespace dtensor::comm::nccl {

enum class Ending { kOrderly, kAbort };

// Thread-safe.
class Reaper {
 public:
  Reaper();
  ~Reaper();  // bounded: a thread that NCCL does not give back is left to it
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;

  // Ends a communicator, which is not valid afterwards. Returns when that is done, or `patience`
  // is over.
  void end(ncclComm_t comm, int device, Ending how, std::chrono::nanoseconds patience);

 private:
  struct Item {
    ncclComm_t comm;
    int device;
    Ending how;
  };
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    // Guarded by mutex.
    std::deque<Item> queue;
    int64_t taken = 0;
    int64_t ended = 0;
    bool stop = false;
    bool stopped = false;
  };
  static void loop(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;
};

}  // namespace dtensor::comm::nccl
