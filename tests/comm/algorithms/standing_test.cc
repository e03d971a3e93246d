// Whom a Standing tells that its Comm has ended, and when.

#include "dtensor/comm/algorithms/standing.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "dtensor/comm/control.h"
#include "dtensor/comm/local/local_control.h"

namespace dtensor::comm {
namespace {

constexpr uint64_t kComm = 3;

TEST(Standing, TellsOnceOfAVerdictAlsoWhereItWasThereBefore) {
  local::Board board(1);
  for (const bool before : {false, true}) {
    const uint64_t comm = before ? kComm : kComm + 1;
    const auto control = board.control(0);
    Standing standing({.comm = comm, .members = {0}, .world_size = 1, .control = control});
    std::vector<std::string> told;
    const auto tell = [&](const Verdict& v) { told.push_back(v.detail); };
    const auto end = [&] {
      control->settle(comm, std::vector<int>{0}, {CommErrorKind::kAborted, 0, true, "enough"},
                      std::chrono::seconds(60));
      standing.look();
    };
    if (before) end();
    standing.on_end(tell);
    if (!before) end();
    standing.look();
    EXPECT_EQ(told, std::vector<std::string>{"enough"}) << before;
  }
}

}  // namespace
}  // namespace dtensor::comm
