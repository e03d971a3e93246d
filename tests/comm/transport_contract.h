// The contract of a Transport, as tests over any body: the target :transport_contract holds the
// tests, and each body's test instantiates TransportContract. A test says what a rank does, as a
// program of it: ranks are threads of this process, or this process is one of them.

#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/comm/transport.h"

namespace dtensor::testing {

// Do waits for a peer end when it closes its Transport?
enum class GonePeer : uint8_t { kIsTold, kMayBeTold, kIsNotTold };

struct TransportWorld {
  std::string name;
  // The ranks of a world that are in this process; none where this process has no part in it.
  std::function<std::vector<std::shared_ptr<comm::Transport>>(int size)> make;
  GonePeer gone_peer = GonePeer::kIsTold;
  // Returns when all ranks of the world made last have called it; without their transports.
  std::function<void()> leave_together = [] {};
};

class TransportContract : public ::testing::TestWithParam<TransportWorld> {
 protected:
  using Program = std::function<void(std::shared_ptr<comm::Transport>& mine)>;
  // Runs it on every rank that is here. A rank's transport ends when all ranks are through.
  static void run(int size, const Program& program) {
    auto here = GetParam().make(size);
    std::vector<std::thread> threads;
    threads.reserve(here.size());
    for (auto& mine : here) {
      threads.emplace_back([&mine, &program] {
        try {
          program(mine);
        } catch (const std::exception& e) {
          ADD_FAILURE() << "a rank threw: " << e.what();
        }
      });
    }
    for (auto& t : threads) t.join();
    if (!here.empty()) GetParam().leave_together();
  }
};

inline std::string transport_name(const ::testing::TestParamInfo<TransportWorld>& info) {
  return info.param.name;
}

}  // namespace dtensor::testing
