// Worlds of processes as a launcher starts them.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "dtensor/comm/launch.h"

namespace dtensor::comm {
namespace {

class Processes : public testing::TestWithParam<int> {};

TEST_P(Processes, FormAWorldAndCompute) {
  LaunchOptions o;
  o.argv = {std::string(std::getenv("TEST_SRCDIR")) + "/" + std::getenv("TEST_WORKSPACE") +
                "/tests/comm/gloo/failing_rank",
            "calls", "-"};
  o.size = GetParam();
  o.timeout = std::chrono::minutes(3);
  EXPECT_EQ(launch_local(o), 0);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Processes, testing::Values(1, 2, 4, 7));

}  // namespace
}  // namespace dtensor::comm
