// Moves in a world of processes over Gloo.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "dtensor/comm/launch.h"

namespace dtensor {
namespace {

TEST(Processes, MoveTensorsOnOneMeshAndBetweenTwo) {
  comm::LaunchOptions o;
  o.argv = {std::string(std::getenv("TEST_SRCDIR")) + "/" + std::getenv("TEST_WORKSPACE") +
            "/tests/tensor/moving_rank"};
  o.size = 4;
  o.timeout = std::chrono::minutes(3);
  EXPECT_EQ(comm::launch_local(o), 0);
}

}  // namespace
}  // namespace dtensor
