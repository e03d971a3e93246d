// Communication while others compute: the same bits under any delay, bounded buffers, lanes.

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/base/file_allocator.h"
#include "dtensor/comm/comm_error.h"
#include "dtensor/fsdp/fully_shard.h"
#include "dtensor/optim/sgd.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tests/support/delayed_transport.h"
#include "dtensor/tests/support/models.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/support/values.h"

namespace dtensor::fsdp {
namespace {

using testing::random;
using testing::rows;
using testing::run_ranks;
using testing::Stack;
using testing::values;

const Options kHalf{.param_dtype = DType::kBFloat16, .reduce_dtype = DType::kBFloat16};

void shard_over(Stack& net, const MeshSlice& dims, const Options& options = {}) {
  for (auto& block : net.blocks) fully_shard(*block, dims);
  fully_shard(net, dims, options);
}

comm::local::WorldOptions delayed(std::chrono::microseconds most) {
  if (most.count() == 0) return {};
  return {.wrap = [most](auto inner) {
    return std::make_shared<testing::DelayedTransport>(std::move(inner), /*seed=*/7, most);
  }};
}

struct Trained {
  std::vector<testing::Values> gradients;  // by step, on rank 0
  int peak_reductions = 0;
};

enum class Tier { kFast, kFile };  // of shards and optimizer state

// Training on (2 replicas, 2 shards) with bf16 parameters and gradients on the wire.
Trained train(int blocks, int steps, std::chrono::microseconds delay, Tier tier = Tier::kFast) {
  Trained run;
  run_ranks(
      4,
      [&](comm::Comm& world) {
        const DeviceMesh mesh(world, {{"rep", 2}, {"dp", 2}});
        Stack net({.width = 4, .hidden = 6, .out = 2, .blocks = blocks});
        nn::init_normal(net, 3, 0.3);
        Options options = kHalf;
        if (tier == Tier::kFile) {
          options.offload = std::make_shared<FileAllocator>(::testing::TempDir());
        }
        for (auto& block : net.blocks) fully_shard(*block, mesh["dp"], options);
        fully_shard(net, mesh["dp"], options);
        optim::SGD optimizer(net.parameters(), {.lr = 0.05});
        for (int step = 0; step < steps; ++step) {
          const DTensor x = rows(random({7, 4}, static_cast<uint64_t>(step)), mesh, {"rep", "dp"});
          const DTensor y = cast(net(x), DType::kFloat32);
          DTensor loss = mean(mul(y, y));
          loss.backward();
          testing::Values gradients = testing::gradient_values(net);
          if (world.rank() == 0) run.gradients.push_back(std::move(gradients));
          EXPECT_EQ(stats().live_reductions, 0);
          EXPECT_EQ(stats().live_groups, 0);
          optimizer.step();
          optimizer.zero_grad();
        }
        if (world.rank() == 0) run.peak_reductions = stats().peak_reductions;
      },
      delayed(delay));
  return run;
}

// pytorch#180665, pytorch#140044, pytorch#180900, pytorch#179128
TEST(Overlap, BuffersLiveUntilTheirTransferEndsAndTheirNumberDoesNotGrow) {
  for (const int blocks : {4, 16}) {
    const int steps = blocks == 4 ? 50 : 5;
    const Trained plain = train(blocks, steps, std::chrono::microseconds(0));
    const Trained late = train(blocks, steps, std::chrono::microseconds(300));
    const Trained slow = train(blocks, steps, std::chrono::microseconds(300), Tier::kFile);
    ASSERT_EQ(late.gradients.size(), static_cast<size_t>(steps));
    EXPECT_EQ(slow.gradients, plain.gradients);
    for (size_t step = 0; step < plain.gradients.size(); ++step) {
      EXPECT_EQ(late.gradients[step], plain.gradients[step]) << blocks << " blocks, step " << step;
    }
    EXPECT_EQ(plain.peak_reductions, 2) << blocks;  // one over shards, one over replicas
    EXPECT_EQ(late.peak_reductions, 2) << blocks;
  }
}

// What is under way while a block's backward runs, by block from the last.
std::vector<int> reductions_seen(const DeviceMesh& mesh, const Options& options) {
  Stack net({.width = 4, .hidden = 6, .out = 2, .blocks = 4});
  nn::init_normal(net, 3, 0.3);
  std::vector<int> seen;
  for (auto& block : net.blocks) {
    block->add_post_hook([&seen](const DTensor& y) {
      return with_backward_hook(y, [&seen] { seen.push_back(stats().live_reductions); });
    });
  }
  shard_over(net, mesh["dp"], options);
  DTensor loss = mean(net(rows(random({4, 4}, 1), mesh, {"dp"})));
  loss.backward();
  return seen;
}

TEST(Overlap, AReductionIsUnderWayWhileTheNextGroupComputes) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    EXPECT_EQ(reductions_seen(mesh, {}), (std::vector<int>{0, 1, 1, 1}));
    EXPECT_EQ(reductions_seen(mesh, {.overlap = Overlap::kNone}), (std::vector<int>{0, 0, 0, 0}));
    EXPECT_GE(stats().in_flight, stats().waited);
    EXPECT_GT(stats().waited.count(), 0);
  });
}

TEST(Overlap, GathersGoOverCommsOfTheirOwn) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Stack net({.width = 4, .hidden = 6, .out = 2, .blocks = 3});
    shard_over(net, mesh["dp"]);
    const DTensor y = net(rows(random({4, 4}, 1), mesh, {"dp"}));
    const std::vector<int> dims{0};
    EXPECT_EQ(mesh.group(dims).counters().calls, 0);
    EXPECT_EQ(testing::calls(StepKind::kAllGather, "fsdp"), 4);
    DTensor loss = sum(y);
    loss.backward();
    EXPECT_EQ(mesh.group(dims).counters().calls, 4);  // the reductions
  });
}

TEST(Overlap, WhatIsNamedIsGatheredInsteadOfWhatIsNext) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Stack plain({.width = 4, .hidden = 6, .out = 2, .blocks = 4});
    Stack net({.width = 4, .hidden = 6, .out = 2, .blocks = 4});
    nn::init_normal(plain, 3, 0.3);
    nn::init_normal(net, 3, 0.3);
    shard_over(net, mesh["dp"]);
    auto& b = net.blocks;
    set_modules_to_forward_prefetch(*b[0], {b[1].get(), b[2].get()});
    set_modules_to_forward_prefetch(*b[1], {b[2].get(), b[3].get()});
    set_modules_to_backward_prefetch(*b[3], {b[2].get(), b[1].get()});
    std::vector<int> forward;
    for (auto& block : b) {
      block->add_pre_hook([&](const nn::Inputs& in) {
        forward.push_back(stats().live_groups);
        return in;
      });
    }
    const Tensor data = random({6, 4}, 1);
    for (int step = 0; step < 2; ++step) {
      forward.clear();
      reset_peak();
      DTensor loss = mean(net(rows(data, mesh, {"dp"})));
      EXPECT_EQ(forward, (std::vector<int>{3, 3, 2, 1})) << step;  // in the first forward, too
      loss.backward();
      EXPECT_EQ(stats().peak_groups, 3);
      EXPECT_EQ(stats().live_groups, 0);
      DTensor want = mean(plain(DTensor(data)));
      want.backward();
      EXPECT_LT(testing::worst(testing::gradient_values(net), testing::gradient_values(plain)),
                1e-6);
    }
    testing::Mlp other({});
    EXPECT_THROW(set_modules_to_forward_prefetch(*b[0], {&other}), PlacementError);
  });
}

// The other ranks wait for its reductions; it does not wait for theirs.
TEST(Overlap, ARankWhoseBackwardThrowsIsNotHeldUp) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Stack net({.width = 4, .hidden = 6, .out = 2, .blocks = 4});
    net.blocks[1]->add_post_hook([&](const DTensor& y) {
      return with_backward_hook(y, [&] {
        if (world.rank() == 1) throw ArgumentError("only here");
      });
    });
    shard_over(net, mesh["dp"]);
    DTensor loss = mean(net(rows(random({4, 4}, 1), mesh, {"dp"})));
    if (world.rank() == 0) {
      EXPECT_THROW(loss.backward(), comm::CommError);
      return;
    }
    EXPECT_THROW(loss.backward(), ArgumentError);
    EXPECT_EQ(stats().live_reductions, 0);
    world.abort("rank 1 gives up");
  });
}

// Hooks of a parameter see what was reduced, once.
TEST(Overlap, HooksOfAParameterRunOnItsReducedGradient) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    nn::Linear net(3, 4);
    fully_shard(net, mesh["dp"]);
    int runs = 0;
    add_grad_hook(net.weight.value(), [&](const DTensor& grad) {
      ++runs;
      EXPECT_TRUE(grad.layout() == net.weight.value().layout());
      return mul(grad, 2.0);
    });
    DTensor loss = sum(net(rows(Tensor::full({4, 3}, 1.0), mesh, {"dp"})));
    loss.backward();
    EXPECT_EQ(runs, 1);
    EXPECT_EQ(values(net.weight.value().grad()), std::vector<float>(12, 8.0F));  // 2 * 4 rows
  });
}

}  // namespace
}  // namespace dtensor::fsdp
