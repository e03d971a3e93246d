// SaveTimer: is it time to save? By steps, by time, or both.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

namespace dtensor::checkpoint {

struct SaveEvery {
  int64_t steps = 0;             // at every step that is a multiple; 0: not by steps
  std::chrono::seconds time{0};  // when so much has passed since the last save; 0: not by time
};

class SaveTimer {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;

  // ArgumentError for negative numbers.
  explicit SaveTimer(SaveEvery every, Clock clock = std::chrono::steady_clock::now);

  // Asked once after every step, on every rank of the root Comm. By steps, it sends nothing. By
  // time, rank 0's clock counts and one broadcast of a number tells the others: ranks that
  // asked their own clocks would save different steps, and none of them would be complete.
  bool is_due(int64_t step);

 private:
  SaveEvery every_;
  Clock clock_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace dtensor::checkpoint
