// The contract of a Comm between processes over Gloo, in shared memory and by TCP.

#include <gtest/gtest.h>

#include <string>

#include "dtensor/tests/comm/process_worlds.h"

namespace dtensor::testing {
namespace {

class GlooProcesses : public ::testing::TestWithParam<std::string> {};

TEST_P(GlooProcesses, KeepTheContractOfAComm) {
  EXPECT_EQ(run_suite_in_processes("tests/comm/contract_rank", 7, GetParam()), 0);
}

INSTANTIATE_TEST_SUITE_P(Paths, GlooProcesses, ::testing::Values("gloo://", "gloo://?shm=off"));

}  // namespace
}  // namespace dtensor::testing
