#include "dtensor/nn/deferred_init.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "dtensor/base/allocator.h"
#include "dtensor/base/error.h"
#include "dtensor/nn/layers.h"
#include "dtensor/tests/support/models.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/support/values.h"

namespace dtensor::nn {
namespace {

int64_t live_bytes() {
  return Context::current().slot<CurrentAllocator>().allocator->stats().live_bytes;
}

TEST(DeferredInit, DescribesAModelThatNoMachineHolds) {
  testing::run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    const int64_t before = live_bytes();
    std::unique_ptr<testing::Mlp> net;
    {
      const DeferredInit deferred;
      net = std::make_unique<testing::Mlp>(
          testing::Mlp::Sizes{.in = 1 << 19, .hidden = 1 << 18, .out = 1 << 19});
    }
    EXPECT_TRUE(is_described(net->up.weight.value()));
    EXPECT_EQ(net->up.weight.value().numel() * 4, int64_t{1} << 39);  // and as many of the other
    replicate(*net, mesh);
    net->up.weight.place(net->up.weight.value().layout().with(0, Shard(0)));
    EXPECT_EQ(net->up.weight.value().local_tensor().size(0), 1 << 17);
    EXPECT_TRUE(is_described(net->up.weight.value()));
    EXPECT_TRUE(net->up.weight.value().requires_grad());
    EXPECT_LT(live_bytes() - before, 1 << 16);
    // Parameters that are made later have memory.
    EXPECT_FALSE(is_described(Linear(2, 3).weight.value()));
  });
}

TEST(DeferredInit, GivesTheBitsOfAModelThatWasNotDeferred) {
  testing::Mlp plain({.in = 5, .hidden = 7, .out = 3});
  init_normal(plain, 9, 0.5);
  for (int ranks = 1; ranks <= 4; ++ranks) {
    testing::run_ranks(ranks, [&](comm::Comm& world) {
      const DeviceMesh mesh(world, {{"dp", ranks}});
      std::unique_ptr<testing::Mlp> net;
      {
        const DeferredInit deferred;
        net = std::make_unique<testing::Mlp>(testing::Mlp::Sizes{.in = 5, .hidden = 7, .out = 3});
      }
      replicate(*net, mesh);
      int64_t mine = 0;
      for (const Parameter& p : net->parameters()) {
        p.place(p.value().layout().with(0, Shard(0)));
        mine += p.value().local_tensor().size_bytes();
      }
      const int64_t before = live_bytes();
      materialize(*net);
      EXPECT_EQ(live_bytes() - before, mine);
      EXPECT_EQ(testing::values(net->up.bias.value()), std::vector<float>(7, 0.0F));
      init_normal(*net, 9, 0.5);
      EXPECT_EQ(testing::parameter_values(*net), testing::parameter_values(plain));
    });
  }
}

TEST(DeferredInit, SaysThatThereIsNoMemory) {
  const DeferredInit deferred;
  Linear net(2, 3);
  EXPECT_THROW(net(DTensor(Tensor::zeros({1, 2}))), ArgumentError);
  EXPECT_THROW(init_normal(net, 1), ArgumentError);
  materialize(net);
  init_normal(net, 1);
  EXPECT_EQ(net(DTensor(Tensor::zeros({1, 2}))).shape(), (Shape{1, 3}));
}

}  // namespace
}  // namespace dtensor::nn
