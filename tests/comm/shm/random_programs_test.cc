// Random programs over threads that share memory as processes of a host do, over `local`, and over
// Gloo's TCP.

#include "dtensor/tests/comm/random_programs.h"

#include <gtest/gtest.h>

#include "dtensor/comm/local/local.h"
#include "dtensor/tests/comm/gloo_world.h"

namespace dtensor::testing {
namespace {

class RandomPrograms : public ::testing::TestWithParam<int> {};

TEST_P(RandomPrograms, GiveWhatASerialModelGivesInSharedMemory) {
  run_random_programs(gloo_world(GetParam(), {{"shm", "1073741824"}}), 30);
}

TEST_P(RandomPrograms, GiveWhatASerialModelGivesOverLocal) {
  run_random_programs(comm::local::make_world(GetParam()), 30);
}

TEST_P(RandomPrograms, GiveWhatASerialModelGivesOverTcp) {
  run_random_programs(gloo_world(GetParam(), {{"shm", "off"}}), 5);
}

INSTANTIATE_TEST_SUITE_P(Sizes, RandomPrograms, ::testing::Values(1, 2, 3, 4, 7));

}  // namespace
}  // namespace dtensor::testing
