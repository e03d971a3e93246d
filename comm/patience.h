// Patience: how a thread waits that has to look again and again. A few times at once; then it
// yields after each look, so that ranks which share a core go on; after some milliseconds it sleeps
// in between, so that a long wait takes nothing from who computes.

#pragma once

#include <sched.h>

#include <chrono>
#include <thread>

namespace dtensor::comm {

class Patience {
 public:
  // After a look; `found` where it was not in vain.
  void pause(bool found) {
    ++looks_;
    if (found) {
      in_vain_ = 0;
      long_ = false;
      return;
    }
    ++in_vain_;
    if (in_vain_ <= kSpins) return;
    if (long_) {
      std::this_thread::sleep_for(kNap);
      return;
    }
    if (in_vain_ == kSpins + 1) yields_since_ = Clock::now();
    sched_yield();
    if (in_vain_ % kPeriod == 0) long_ = Clock::now() - yields_since_ > kLong;
  }

  // Now and then: is it time to look at the clock?
  bool time_to_look() const { return long_ || looks_ % kPeriod == kPeriod - 1; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int64_t kSpins = 20;  // a microsecond or two
  static constexpr int64_t kPeriod = 64;
  static constexpr std::chrono::milliseconds kLong{10};
  static constexpr std::chrono::microseconds kNap{100};

  int64_t looks_ = 0;
  int64_t in_vain_ = 0;
  bool long_ = false;
  Clock::time_point yields_since_ = {};
};

}  // namespace dtensor::comm
