// Random programs over UCX, without shared memory of our own.

#include "dtensor/tests/comm/random_programs.h"

#include <gtest/gtest.h>

#include "dtensor/tests/comm/ucx/world.h"

namespace dtensor::testing {
namespace {

class UcxRandomPrograms : public ::testing::TestWithParam<int> {};

TEST_P(UcxRandomPrograms, GiveWhatASerialModelGives) {
  run_random_programs(ucx_world(GetParam(), "posix,self,tcp"), 5);
}

TEST_P(UcxRandomPrograms, GiveWhatASerialModelGivesOverTcp) {
  run_random_programs(ucx_world(GetParam(), "tcp"), 3);
}

INSTANTIATE_TEST_SUITE_P(Sizes, UcxRandomPrograms, ::testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace dtensor::testing
