// Reaper: the thread that ends communicators. NCCL may take its time over that, or not come back
// where a peer is gone; who waits for data must not wait for it without a bound. Endings that are
// asked for at one time have one bound together: what is left of it is for the ones behind. Aborts
// wait for no ending.

#pragma once

#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace dtensor::comm::nccl {

// Thread-safe.
class Reaper {
 public:
  Reaper();
  ~Reaper();  // bounded: a thread that NCCL does not give back is left to it
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;

  // Aborts a communicator, which is not valid afterwards. Returns when that is done, or `patience`
  // is over.
  void abort(ncclComm_t comm, int device, std::chrono::nanoseconds patience);
  // Ends one that has nothing to do any more, in the Reaper's own time, and calls `afterwards`.
  // After a while it is aborted.
  void finish(ncclComm_t comm, int device, std::function<void()> afterwards);

 private:
  struct Item {
    ncclComm_t comm = nullptr;
    int device = 0;
    // Until when its orderly end may take; passed: it is aborted.
    std::chrono::steady_clock::time_point until = {};
    std::function<void()> afterwards = {};
    bool begun = false;
  };
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    // Guarded by mutex.
    std::deque<Item> aborts;
    std::deque<Item> endings;
    int64_t aborts_taken = 0;
    int64_t aborts_ended = 0;
    bool stop = false;
    bool stopped = false;
  };
  enum class Outcome : uint8_t { kEnded, kFailed, kAbortWaits };
  static Outcome finalize(Item& item, State& state);
  static void loop(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;
};

}  // namespace dtensor::comm::nccl
