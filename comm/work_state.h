// WorkState: what a Work is a handle of: one call, from issue to completion.

#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "dtensor/comm/call.h"
#include "dtensor/comm/comm_error.h"

namespace dtensor::comm {

class Lane;

// Thread-safe. A call is taken once, by the lane's thread or by who waits for it.
class WorkState {
 public:
  WorkState(Call call, OpInfo info, std::weak_ptr<Lane> lane)
      : call_(std::move(call)), info_(std::move(info)), lane_(std::move(lane)) {}

  bool ready() const { return done_.load(std::memory_order_acquire); }
  // Waits until another thread has run the call; throws its CommError.
  void wait();
  std::shared_ptr<Lane> lane() const { return lane_.lock(); }
  const OpInfo& info() const { return info_; }

 private:
  friend class Lane;
  // Ends the call, and lets the owners of its buffers go.
  void complete(std::optional<CommError::Fields> failure);

  Call call_;  // of the thread that took it
  const OpInfo info_;
  const std::weak_ptr<Lane> lane_;

  std::mutex mutex_;
  std::condition_variable completed_;
  std::optional<CommError::Fields> failure_;  // guarded by mutex_
  std::atomic<bool> done_{false};
};

}  // namespace dtensor::comm
