#include "dtensor/fsdp/gather_lane.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "dtensor/fsdp/fully_shard.h"
#include "dtensor/tests/fsdp/chain.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/support/values.h"

namespace dtensor::fsdp {
namespace {

using testing::Chain;

std::vector<float> gradient_on(comm::Comm& world) {
  const DeviceMesh mesh(world, {{"dp", 2}});
  Chain net(2, 4);
  testing::shard_all(net, mesh["dp"]);
  DTensor loss = sum(net(testing::row_per_rank(mesh, 4, [](int r) { return r + 1; })));
  loss.backward();
  return testing::values(net.own.weight.value().grad());
}

// Two worlds with meshes of one text: rank 0 has made a lane before, rank 2 has not.
TEST(GatherLane, ARankFromAnotherWorldMeetsOneThatIsNew) {
  testing::run_ranks(3, [](comm::Comm& world) {
    const std::vector<float> want(4, 3.0F);
    for (const std::array<int, 2> ranks : {std::array{0, 1}, std::array{0, 2}}) {
      if (world.rank() != ranks[0] && world.rank() != ranks[1]) continue;
      const std::unique_ptr<comm::Comm> pair = world.group(ranks, "pair");
      EXPECT_EQ(gradient_on(*pair), want);
    }
  });
}

// On one world every lane is another Comm.
TEST(GatherLane, ModelsOfOneMeshHaveLanesOfTheirOwn) {
  testing::run_ranks(2, [](comm::Comm& world) {
    for (int model = 0; model < 3; ++model) {
      EXPECT_EQ(gradient_on(world), std::vector<float>(4, 3.0F));
    }
  });
}

}  // namespace
}  // namespace dtensor::fsdp
