// The contract of a Comm between processes over UCX, in UCX's shared memory and by TCP.

#include <gtest/gtest.h>

#include <string>

#include "dtensor/tests/comm/process_worlds.h"

namespace dtensor::testing {
namespace {

class UcxProcesses : public ::testing::TestWithParam<std::string> {};

TEST_P(UcxProcesses, KeepTheContractOfAComm) {
  EXPECT_EQ(run_suite_in_processes("tests/comm/contract_rank", 7, GetParam()), 0);
}

INSTANTIATE_TEST_SUITE_P(Paths, UcxProcesses,
                         ::testing::Values("ucx://?tls=posix,self,tcp&shm=off", "ucx://?shm=off"));

}  // namespace
}  // namespace dtensor::testing
