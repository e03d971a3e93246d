// The contract of a Comm over Gloo, with ranks as threads that meet at a memory store.

#include "dtensor/tests/comm/contract.h"
#include "dtensor/tests/comm/gloo_world.h"

namespace dtensor::testing {
namespace {

// All ranks share memory. A gigabyte each: thread sanitizer has little room for mappings.
std::vector<std::unique_ptr<comm::Comm>> shared(int size) {
  return gloo_world(size, {{"shm", "1073741824"}});
}

std::vector<std::unique_ptr<comm::Comm>> tcp(int size) {
  return gloo_world(size, {{"shm", "off"}});
}

// Aluminum#229: every message is split at a limit that no size in the tests is a multiple of.
std::vector<std::unique_ptr<comm::Comm>> split(int size) {
  return gloo_world(size, {{"shm", "off"}, {"max_message", "1000"}});
}

INSTANTIATE_TEST_SUITE_P(Shared, CommContract, ::testing::ValuesIn(worlds("gloo_shared", shared)),
                         world_name);
INSTANTIATE_TEST_SUITE_P(Gloo, CommContract, ::testing::ValuesIn(worlds("gloo", tcp)), world_name);
INSTANTIATE_TEST_SUITE_P(GlooSplit, CommContract, ::testing::ValuesIn(worlds("gloo_split", split)),
                         world_name);

}  // namespace
}  // namespace dtensor::testing
