// The ranks of a host, in processes of their own, read each block once and pass it on by sockets.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "dtensor/comm/launch.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"

namespace dtensor::checkpoint {
namespace {

TEST(SharedLoadProcesses, ABlockIsReadOnceByAHost) {
  const testing::TemporaryDirectory run;
  comm::LaunchOptions o;
  o.argv = {std::string(std::getenv("TEST_SRCDIR")) + "/" + std::getenv("TEST_WORKSPACE") +
                "/tests/checkpoint/loading_rank",
            run.path()};
  o.size = 4;
  o.timeout = std::chrono::minutes(3);
  EXPECT_EQ(comm::launch_local(o), 0);
}

}  // namespace
}  // namespace dtensor::checkpoint
