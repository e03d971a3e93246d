// Scenario: what goes wrong in one run of the failure suite, as a function of its seed, for the
// test and for the ranks.

#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <random>
#include <string_view>

namespace dtensor::testing {

enum class Fault {
  kKill,          // SIGKILL in the middle of a call
  kStop,          // SIGSTOP in the middle of a call; the test wakes it when the others have thrown
  kExit,          // the process exits in the middle of a call
  kExitBefore,    // it exits after the rendezvous, before its first call
  kLeaveBefore,   // it leaves in good order then
  kCloseSockets,  // all its connections are shut down in the middle of a call
  kSlow,          // nothing: it is late, by more than the liveness limit
};
inline constexpr std::array<std::string_view, 7> kFaultNames = {
    "kill", "stop", "exit", "exit_before", "leave_before", "close_sockets", "slow"};

inline constexpr int kOperations = 10;  // of operations.h

struct Scenario {
  Fault fault = Fault::kKill;
  int size = 4;
  int victim = 0;
  int operation = 0;
  int64_t count = 1;  // elements of a rank's share
  int round = 0;      // in which it happens, and how long after its beginning
  std::chrono::microseconds delay{0};
  bool tcp_store = false;  // served by rank 0, else a directory
};

// Any 70 seeds in a row have every fault in every operation.
inline Scenario scenario_of(int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  const auto below = [&](int n) {
    return static_cast<int>(random() % static_cast<unsigned>(n));  // the same in every library
  };
  Scenario s;
  s.operation = seed % kOperations;
  s.fault = static_cast<Fault>((seed / kOperations + seed) % static_cast<int>(kFaultNames.size()));
  s.size = std::array{2, 3, 4, 4}[static_cast<size_t>(below(4))];
  s.victim = below(s.size);
  s.count = std::array{1, 1000, 100'000, 500'000}[static_cast<size_t>(below(4))];
  s.round = below(4);
  s.delay = std::chrono::microseconds(below(s.count > 1000 ? 10'000 : 300));
  s.tcp_store = below(2) == 1;
  return s;
}

}  // namespace dtensor::testing
