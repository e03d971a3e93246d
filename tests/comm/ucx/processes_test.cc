// Worlds of processes over UCX as a launcher starts them.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <tuple>

#include "dtensor/comm/launch.h"

namespace dtensor::comm {
namespace {

class UcxProcesses : public testing::TestWithParam<std::tuple<int, std::string>> {};

TEST_P(UcxProcesses, FormAWorldAndCompute) {
  LaunchOptions o;
  o.argv = {std::string(std::getenv("TEST_SRCDIR")) + "/" + std::getenv("TEST_WORKSPACE") +
                "/tests/comm/gloo/failing_rank",
            "calls", "-"};
  o.size = std::get<0>(GetParam());
  o.comm = std::get<1>(GetParam());
  o.timeout = std::chrono::minutes(3);
  EXPECT_EQ(launch_local(o), 0);
}

INSTANTIATE_TEST_SUITE_P(Sizes, UcxProcesses,
                         testing::Combine(testing::Values(1, 2, 3, 4, 7),
                                          testing::Values("ucx", "ucx://?shm=off",
                                                          "ucx://?tls=tcp&shm=off")));

}  // namespace
}  // namespace dtensor::comm
