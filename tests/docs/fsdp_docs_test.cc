// The C++ of docs/fsdp.md.

#include <gtest/gtest.h>

#include <vector>

#include "dtensor/fsdp/fully_shard.h"
#include "dtensor/ops/ops.h"
#include "dtensor/tests/support/models.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

void shard(testing::Stack& net, const DeviceMesh& mesh) {
  for (auto& block : net.blocks) fsdp::fully_shard(*block, mesh["dp"]);
  fsdp::fully_shard(net, mesh["dp"],
                    {.param_dtype = DType::kBFloat16, .reduce_dtype = DType::kFloat32});
}

void accumulate_gradients(nn::Module& net, const std::vector<DTensor>& microbatches) {
  for (size_t i = 0; i < microbatches.size(); ++i) {
    DTensor y = cast(net(microbatches[i]), DType::kFloat32);
    DTensor loss = mul(mean(y), 1.0 / static_cast<double>(microbatches.size()));
    loss.backward({.defer = i + 1 < microbatches.size()});  // reduced once, by the last
  }
}

TEST(FsdpDocs, RunAsPrinted) {
  testing::run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    testing::Stack net({});
    nn::init_normal(net, 1);
    shard(net, mesh);
    const DTensor x = testing::rows(testing::random({4, 3}, 1), mesh, {"dp"});
    accumulate_gradients(net, {x, x});
    EXPECT_EQ(net.head.weight.value().grad().layout().placement(0), Shard(0));
    EXPECT_EQ(fsdp::stats().live_groups, 0);
  });
}

}  // namespace
}  // namespace dtensor
