// Patience: how a thread waits that has to look again and again. At first it looks at once, for as
// long as it has a core of its own; then it yields after each look, so that who shares its core
// goes on; after some milliseconds it sleeps in between, so that a long wait takes nothing from who
// computes.

#pragma once

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <thread>

#include "dtensor/base/language.h"

namespace dtensor {

class Patience {
 public:
  // Looks before it yields: 0 where threads that wait for each other share cores. One takes about
  // 20 ns and what the look itself takes.
  explicit Patience(int64_t spins) : spins_(spins) {}

  // After a look in vain.
  void pause() {
    ++looks_;
    ++in_vain_;
    if (in_vain_ <= spins_) return relax();
    if (long_) {
      std::this_thread::sleep_for(kNap);
      return;
    }
    if (in_vain_ == spins_ + 1) yields_since_ = Clock::now();
    sched_yield();
    if (in_vain_ % kPeriod == 0) long_ = Clock::now() - yields_since_ > kLong;
  }

  // After a look that was not in vain, though it is not over.
  void encourage() {
    ++looks_;
    in_vain_ = 0;
    long_ = false;
  }

  // Does pause() come back at once? Who can sleep until it is woken does so then.
  bool spins() const { return in_vain_ < spins_; }
  // Now and then: is it time to look at the clock?
  bool time_to_look() const { return long_ || looks_ % kPeriod == kPeriod - 1; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int64_t kPeriod = 64;
  static constexpr std::chrono::milliseconds kLong{10};
  static constexpr std::chrono::microseconds kNap{100};

  static void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  const int64_t spins_;
  int64_t looks_ = 0;
  int64_t in_vain_ = 0;
  bool long_ = false;
  Clock::time_point yields_since_ = {};
};

}  // namespace dtensor
