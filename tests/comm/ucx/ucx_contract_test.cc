// The contract of a Comm over UCX, with ranks as threads that meet at a memory store.

#include "dtensor/tests/comm/contract.h"
#include "dtensor/tests/comm/ucx/world.h"

namespace dtensor::testing {
namespace {

std::vector<std::unique_ptr<comm::Comm>> posix(int size) {
  return ucx_world(size, "posix,self,tcp");
}
std::vector<std::unique_ptr<comm::Comm>> tcp(int size) { return ucx_world(size, "tcp"); }

// Every message is split at a limit that no size in the tests is a multiple of.
std::vector<std::unique_ptr<comm::Comm>> split(int size) {
  return ucx_world(size, "posix,self,tcp", "1000");
}

INSTANTIATE_TEST_SUITE_P(Posix, CommContract, ::testing::ValuesIn(worlds("ucx_posix", posix)),
                         world_name);
INSTANTIATE_TEST_SUITE_P(Tcp, CommContract, ::testing::ValuesIn(worlds("ucx_tcp", tcp)),
                         world_name);
INSTANTIATE_TEST_SUITE_P(Split, CommContract,
                         ::testing::Values(CommWorld{"ucx_split", 2, split},
                                           CommWorld{"ucx_split", 3, split}),
                         world_name);

}  // namespace
}  // namespace dtensor::testing
