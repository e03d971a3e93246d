// The contract of a Comm over comm/nccl, with a stand-in for the libraries.

#include "dtensor/tests/comm/contract.h"
#include "dtensor/tests/comm/nccl/stand_in.h"
#include "dtensor/tests/comm/nccl/world.h"

namespace dtensor::testing {
namespace {

// What the stand-in found wrong in the tests of this program.
class Faults : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo& info) override {
    for (const auto& fault : stand_in::take_faults()) {
      ADD_FAILURE() << info.name() << ": " << fault;
    }
  }
};
[[maybe_unused]] const bool listening = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new Faults);
  return true;
}();

INSTANTIATE_TEST_SUITE_P(Nccl, CommContract, ::testing::ValuesIn(worlds("nccl", device_world)),
                         world_name);
INSTANTIATE_TEST_SUITE_P(Hybrid, CommContract, ::testing::ValuesIn(worlds("hybrid", hybrid_world)),
                         world_name);

}  // namespace
}  // namespace dtensor::testing
