// Pause: how a rank waits for another in shared memory: it looks again and again for some
// microseconds where every rank has a core, then lets others run between looks, and sleeps between
// them once it has waited long.

#pragma once

#include <sched.h>

#include <chrono>
#include <thread>

namespace dtensor::comm::shm {

class Pause {
 public:
  enum class Cores : uint8_t { kEnough, kShared };
  explicit Pause(Cores cores) : spins_(cores == Cores::kEnough ? kSpins : 0) {}

  void operator()() {
    if (looks_ < spins_) {
      ++looks_;
      relax();
    } else if (yields_ < kYields) {
      ++yields_;
      sched_yield();
    } else {
      std::this_thread::sleep_for(kSleep);
    }
  }

 private:
  static constexpr int kSpins = 300;
  static constexpr int kYields = 20'000;
  static constexpr std::chrono::microseconds kSleep{100};

  static void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  const int spins_;
  int looks_ = 0;
  int yields_ = 0;
};

}  // namespace dtensor::comm::shm
