#include "dtensor/comm/local/local.h"
#include "dtensor/tests/comm/contract.h"

namespace dtensor::testing {
namespace {

std::vector<std::unique_ptr<comm::Comm>> plain(int size) { return comm::local::make_world(size); }

// Aluminum#229: every message is split at a limit that no size in the tests is a multiple of.
std::vector<std::unique_ptr<comm::Comm>> split(int size) {
  return comm::local::make_world(size, {.max_message_bytes = 1000});
}

// Beyond eight ranks, calls are agreed on in rounds.
INSTANTIATE_TEST_SUITE_P(LocalLarge, CommContract, ::testing::Values(CommWorld{"local", 9, plain}),
                         world_name);
INSTANTIATE_TEST_SUITE_P(Local, CommContract, ::testing::ValuesIn(worlds("local", plain)),
                         world_name);
INSTANTIATE_TEST_SUITE_P(LocalSplit, CommContract,
                         ::testing::Values(CommWorld{"local_split", 2, split},
                                           CommWorld{"local_split", 3, split}),
                         world_name);

}  // namespace
}  // namespace dtensor::testing
