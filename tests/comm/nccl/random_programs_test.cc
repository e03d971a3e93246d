// Random programs over comm/nccl, with a stand-in for the libraries.

#include "dtensor/tests/comm/random_programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dtensor/tests/comm/nccl/stand_in.h"
#include "dtensor/tests/comm/nccl/world.h"

namespace dtensor::testing {
namespace {

class NcclRandomPrograms : public ::testing::TestWithParam<int> {};

TEST_P(NcclRandomPrograms, GiveWhatASerialModelGives) {
  run_random_programs(device_world(GetParam()), 10);
  EXPECT_THAT(stand_in::take_faults(), ::testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Sizes, NcclRandomPrograms, ::testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace dtensor::testing
