#include "dtensor/comm/work.h"

#include "dtensor/comm/lane.h"
#include "dtensor/comm/work_state.h"

namespace dtensor::comm {

bool Work::ready() const { return !state_ || state_->ready(); }

void Work::wait() {
  if (!state_) return;
  if (!state_->ready()) {
    if (const auto lane = state_->lane()) lane->help(*state_);
  }
  state_->wait();
}

void Work::wait_on(Stream) { wait(); }

OpInfo Work::info() const { return state_ ? state_->info() : OpInfo{}; }

}  // namespace dtensor::comm
