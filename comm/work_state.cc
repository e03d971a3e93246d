#include "dtensor/comm/work_state.h"

#include <utility>

namespace dtensor::comm {

void WorkState::wait() {
  std::unique_lock lock(mutex_);
  completed_.wait(lock, [&] { return ready(); });  // bounded: a call ends by its deadline
  if (failure_) throw CommError(*failure_);
}

void WorkState::complete(std::optional<CommError::Fields> failure) {
  call_ = Call{};
  const std::lock_guard lock(mutex_);
  failure_ = std::move(failure);
  done_.store(true, std::memory_order_release);
  completed_.notify_all();
}

}  // namespace dtensor::comm
