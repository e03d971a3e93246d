// When groups are gathered, freed and reduced: memory, deferral, frozen and unused parameters.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/fsdp/fully_shard.h"
#include "dtensor/optim/clip_grad_norm.h"
#include "dtensor/optim/sgd.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tests/fsdp/chain.h"
#include "dtensor/tests/support/models.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/support/values.h"

namespace dtensor::fsdp {
namespace {

using testing::Chain;
using testing::ledger;
using testing::random;
using testing::row_per_rank;
using testing::rows;
using testing::run_ranks;
using testing::Scale;
using testing::shard_all;
using testing::Stack;
using testing::values;

// pytorch#147179, torchtitan#735
TEST(Schedule, AtMostTwoGroupsAreGatheredAndNoneIsLeft) {
  run_ranks(4, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 4}});
    Chain net(6, 8);
    shard_all(net, mesh["dp"]);
    std::vector<int> seen;  // while a group computes
    for (auto& part : net.parts) {
      part->add_pre_hook([&](const nn::Inputs& in) {
        seen.push_back(stats().live_groups);
        return in;
      });
    }
    const auto forward = [&](uint64_t seed) {
      return mean(net(rows(random({4, 8}, seed), mesh, {"dp"})));
    };
    for (uint64_t step = 0; step < 10; ++step) {
      reset_peak();
      DTensor loss = forward(step);
      EXPECT_LE(stats().live_groups, 0);
      loss.backward();
      EXPECT_EQ(stats().peak_groups, 2) << step;  // in backward one is gathered ahead at once
      EXPECT_EQ(stats().live_groups, 0) << step;
    }
    // The first forward learns the order; from the second on the next group is gathered ahead.
    ASSERT_EQ(seen.size(), 60U);
    EXPECT_EQ(std::vector<int>(seen.begin(), seen.begin() + 6), std::vector<int>(6, 1));
    EXPECT_EQ(std::vector<int>(seen.end() - 6, seen.end()), (std::vector<int>{2, 2, 2, 2, 2, 1}));
    const NoGrad no_grad;
    for (uint64_t step = 0; step < 10; ++step) {
      reset_peak();
      forward(step);
      EXPECT_EQ(stats().peak_groups, 2) << step;
      EXPECT_EQ(stats().live_groups, 0) << step;
    }
  });
}

TEST(Schedule, MemoryOfGatheredParametersIsGivenBackAfterForwardAndAfterBackward) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Chain net(3, 4);
    shard_all(net, mesh["dp"]);
    std::vector<std::shared_ptr<Storage>> memory;
    const auto keep = [&](Scale& part) {
      part.add_pre_hook([&](const nn::Inputs& in) {
        memory.push_back(part.weight.use().local_tensor().storage());
        EXPECT_FALSE(memory.back()->is_empty());
        return in;
      });
    };
    keep(net.own);
    for (auto& part : net.parts) keep(*part);
    for (int step = 0; step < 2; ++step) {
      memory.clear();
      DTensor loss = sum(net(row_per_rank(mesh, 4, [](int r) { return r + 1; })));
      ASSERT_EQ(memory.size(), 4U);
      EXPECT_FALSE(memory[0]->is_empty());  // the root's
      for (size_t i = 1; i < 4; ++i) EXPECT_TRUE(memory[i]->is_empty()) << i;
      loss.backward();
      for (const auto& storage : memory) EXPECT_TRUE(storage->is_empty());
    }
  });
}

TEST(Schedule, GathersAheadInVainDoNoHarm) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Chain net(4, 4);
    shard_all(net, mesh["dp"]);
    for (const size_t first : {0, 2, 0, 3, 4, 0}) {
      net.first = first;
      reset_peak();
      DTensor loss = mean(net(row_per_rank(mesh, 4, [](int r) { return r + 1; })));
      loss.backward();
      EXPECT_LE(stats().peak_groups, 2);
      EXPECT_EQ(stats().live_groups, 0);
    }
    // Used in three steps of mean 1.5 over 4 elements; in all six; in four; in five.
    const auto grad = [&](const Scale& s) { return values(s.weight.value().grad())[0]; };
    EXPECT_FLOAT_EQ(grad(*net.parts[0]), 3 * 1.5F / 4);
    EXPECT_FLOAT_EQ(grad(*net.parts[2]), 4 * 1.5F / 4);
    EXPECT_FLOAT_EQ(grad(*net.parts[3]), 5 * 1.5F / 4);
    EXPECT_FLOAT_EQ(grad(net.own), 6 * 1.5F / 4);
  });
}

TEST(Schedule, AForwardWithoutBackwardLeavesNothingBehind) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Chain net(3, 4);
    shard_all(net, mesh["dp"]);
    const DTensor x = row_per_rank(mesh, 4, [](int) { return 1; });
    for (int step = 0; step < 3; ++step) {
      const DTensor loss = mean(net(x));
      EXPECT_TRUE(loss.requires_grad());
    }
    DTensor a = mean(net(x));
    DTensor both = add(a, mean(net(x)));  // two forwards, one backward
    both.backward();
    EXPECT_EQ(stats().live_groups, 0);
    EXPECT_EQ(values(net.parts[1]->weight.value().grad()), std::vector<float>(4, 0.5F));
    net.parts[1]->add_pre_hook([](const nn::Inputs&) -> nn::Inputs { throw ArgumentError("no"); });
    EXPECT_THROW(net(x), ArgumentError);
    EXPECT_EQ(stats().live_groups, 0);
  });
}

// torchtitan#1710, cosmos-framework#162: gradients and reduce-scatter bytes are those of one batch.
TEST(Schedule, DeferredMicrobatchesReduceOnce) {
  run_ranks(4, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 4}});
    std::vector<std::vector<float>> gradients;
    std::vector<int64_t> bytes;
    for (const int count : {1, 2, 4}) {
      Chain net(3, 5);
      shard_all(net, mesh["dp"]);
      ledger().clear();
      for (int k = 0; k < count; ++k) {
        // Rows r of every rank are 8 samples of value 1...8 of rank r, cut into microbatches.
        Tensor x = Tensor::empty({4 * 8 / count, 5});
        for (int64_t i = 0; i < x.numel(); ++i) {
          const int64_t row = i / 5;
          const int64_t rank = row / (8 / count);
          const int64_t sample = row % (8 / count) + k * (8 / count);
          x.data<float>()[i] = static_cast<float>(sample + 1 + 10 * rank);
        }
        DTensor loss = mul(sum(net(distribute(x, mesh, {Shard(0)}))), 1.0 / 32);
        loss.backward({.defer = k + 1 < count});
        EXPECT_EQ(stats().live_groups, 0);
      }
      bytes.push_back(0);
      for (const LedgerEntry& e : ledger().entries()) {
        if (e.kind == StepKind::kReduceScatter) bytes.back() += e.payload_bytes;
      }
      gradients.push_back(values(net.parts[1]->weight.value().grad()));
      EXPECT_EQ(values(net.own.weight.value().grad()), gradients.back());
    }
    // The mean of 1...8 plus the mean of 0, 10, 20, 30.
    for (const auto& g : gradients) EXPECT_EQ(g, std::vector<float>(5, 19.5F));
    EXPECT_EQ(bytes[0], 4 * 3 * 5 * 4);  // four groups, 3 parts of each of 5 floats
    EXPECT_EQ(bytes[1], bytes[0]);
    EXPECT_EQ(bytes[2], bytes[0]);
  });
}

// Between a deferred backward and the one that reduces, the gradient is Partial and whole.
TEST(Schedule, ADeferredGradientIsNotSteppedOnAndCanBeDropped) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Chain net(1, 4);
    shard_all(net, mesh["dp"]);
    const nn::Parameter& w = net.parts[0]->weight;
    optim::SGD optimizer(net.parameters(), {.lr = 0.1});
    const auto backward = [&](bool defer) {
      DTensor loss = sum(net(row_per_rank(mesh, 4, [](int r) { return r + 1; })));
      loss.backward({.defer = defer});
    };
    backward(false);  // 3
    backward(true);
    EXPECT_TRUE(w.value().grad().spec().has_partial());
    EXPECT_EQ(values(w.value().grad()), std::vector<float>(4, 3.0F));
    EXPECT_THROW(optimizer.step(), PlacementError);
    EXPECT_THROW(optim::clip_grad_norm(net.parameters(), 1.0), PlacementError);
    backward(true);
    backward(false);
    EXPECT_EQ(values(w.value().grad()), std::vector<float>(4, 12.0F));  // all four
    EXPECT_TRUE(w.value().grad().layout() == w.value().layout());
    optimizer.zero_grad();
    backward(true);
    optimizer.zero_grad();
    backward(false);
    EXPECT_EQ(values(w.value().grad()), std::vector<float>(4, 3.0F));
    optimizer.step();
  });
}

// pytorch#186998, pytorch#196996: sums in float32 and one rounding; frozen at first.
TEST(Schedule, AFrozenParameterIsTrainedLaterAsIfItHadNeverBeenFrozen) {
  run_ranks(4, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 4}});
    const float orders[4] = {256, 1, 1, 2};
    Chain net(2, 24);
    Scale& thawed = *net.parts[0];
    thawed.weight.value().replace(DTensor(Tensor::full({24}, 1.0, DType::kBFloat16)));
    thawed.weight.value().set_requires_grad(false);
    shard_all(net, mesh["dp"], {.param_dtype = DType::kBFloat16});
    // Element i has the gradients in the i-th of 24 orders: rotated and swapped here.
    Tensor x = Tensor::empty({4, 24});
    std::vector<int> order{0, 1, 2, 3};
    for (int i = 0; i < 24; ++i) {
      for (int r = 0; r < 4; ++r) {
        x.data<float>()[r * 24 + i] = orders[order[static_cast<size_t>(r)]];
      }
      std::ranges::next_permutation(order);
    }
    const auto step = [&] {
      DTensor loss = sum(cast(net(distribute(x, mesh, {Shard(0)})), DType::kFloat32));
      loss.backward();
      EXPECT_EQ(stats().live_groups, 0);
    };
    step();
    EXPECT_FALSE(thawed.weight.value().grad().defined());
    EXPECT_EQ(values(net.parts[1]->weight.value().grad()), std::vector<float>(24, 260.0F));
    thawed.weight.value().set_requires_grad(true);
    step();
    EXPECT_EQ(values(thawed.weight.value().grad()), std::vector<float>(24, 260.0F));
  });
}

// pytorch#160279
TEST(Schedule, AParameterThatOneRankUsesGetsItsGradientEverywhere) {
  for (const int groups : {0, 2}) {  // in the root's group, and in one of its own
    run_ranks(4, [&](comm::Comm& world) {
      const DeviceMesh mesh(world, {{"dp", 4}});
      Chain net(groups, 5);
      shard_all(net, mesh["dp"]);
      Scale& odd = groups == 0 ? net.own : *net.parts[1];
      odd.used = world.rank() == 1;
      DTensor loss = sum(net(row_per_rank(mesh, 5, [](int r) { return r == 1 ? 6 : 100; })));
      loss.backward();
      EXPECT_EQ(values(odd.weight.value().grad()), std::vector<float>(5, 6.0F));
      EXPECT_EQ(stats().live_groups, 0);
    });
  }
}

TEST(Schedule, AParameterUsedInOneMicrobatchOnlyGetsThatGradient) {
  for (const int used_in : {0, 1}) {
    run_ranks(4, [&](comm::Comm& world) {
      const DeviceMesh mesh(world, {{"dp", 4}});
      Chain net(2, 5);
      shard_all(net, mesh["dp"]);
      for (int k = 0; k < 2; ++k) {
        net.parts[0]->used = k == used_in;
        net.first = k == used_in ? 0 : 1;  // its module does not run either
        DTensor loss = sum(net(row_per_rank(mesh, 5, [](int r) { return r; })));
        loss.backward({.defer = k == 0});
      }
      EXPECT_EQ(values(net.parts[0]->weight.value().grad()), std::vector<float>(5, 6.0F));
      EXPECT_EQ(values(net.parts[1]->weight.value().grad()), std::vector<float>(5, 12.0F));
      EXPECT_TRUE(net.parts[0]->weight.value().grad().layout() ==
                  net.parts[0]->weight.value().layout());
    });
  }
}

// Frozen weights are needed for the gradient of what stands before them.
TEST(Schedule, FrozenGroupsAreGatheredAgainAndFreedInBackward) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Chain net(6, 4);
    for (size_t i = 1; i < 6; ++i) net.parts[i]->weight.value().set_requires_grad(false);
    shard_all(net, mesh["dp"]);
    for (int step = 0; step < 3; ++step) {
      reset_peak();
      ledger().clear();
      DTensor loss = sum(net(row_per_rank(mesh, 4, [](int r) { return r + 1; })));
      loss.backward();
      EXPECT_LE(stats().peak_groups, 2);
      EXPECT_EQ(stats().live_groups, 0);
      EXPECT_EQ(testing::entries(StepKind::kAllGather, "fsdp"), 2 * 6 + 1);
      EXPECT_EQ(testing::entries(StepKind::kReduceScatter, "fsdp"), 2);
    }
    EXPECT_EQ(values(net.parts[0]->weight.value().grad()), std::vector<float>(4, 9.0F));
    EXPECT_FALSE(net.parts[1]->weight.value().grad().defined());
  });
}

// The root's frozen weight is read until backward has left the root, though its group reduces
// nothing.
TEST(Schedule, TheRootsGroupMayBeFrozen) {
  for (const bool freed : {false, true}) {
    run_ranks(2, [&](comm::Comm& world) {
      const DeviceMesh mesh(world, {{"dp", 2}});
      Stack net({.width = 4, .hidden = 6, .out = 2, .blocks = 2});
      Stack single({.width = 4, .hidden = 6, .out = 2, .blocks = 2});
      for (Stack* s : {&net, &single}) {
        nn::init_normal(*s, 1, 0.5);
        s->head.weight.value().set_requires_grad(false);
      }
      for (auto& block : net.blocks) fully_shard(*block, mesh["dp"]);
      fully_shard(net, mesh["dp"], {.reshard_after_forward = freed});
      const Tensor data = random({6, 4}, 1);
      DTensor loss = mean(net(rows(data, mesh, {"dp"})));
      loss.backward();
      DTensor want = mean(single(DTensor(data)));
      want.backward();
      EXPECT_LT(testing::worst(testing::gradient_values(net), testing::gradient_values(single)),
                1e-6);
      EXPECT_EQ(stats().live_groups, 0);
    });
  }
}

TEST(Schedule, NothingIsGatheredAheadBeyondTwoWhereGroupsStandInsideEachOther) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Stack net({.width = 4, .hidden = 6, .out = 2, .blocks = 3});
    for (auto& block : net.blocks) {
      fully_shard(block->up, mesh["dp"]);
      fully_shard(*block, mesh["dp"]);
    }
    fully_shard(net, mesh["dp"]);
    for (uint64_t step = 0; step < 3; ++step) {
      reset_peak();
      DTensor loss = mean(net(rows(random({6, 4}, step), mesh, {"dp"})));
      EXPECT_LE(stats().peak_groups, 2);
      loss.backward();
      EXPECT_LE(stats().peak_groups, 2);
      EXPECT_EQ(stats().live_groups, 0);
    }
  });
}

// A group with a frozen and a trainable parameter: the frozen one is read after the gradient of
// the other is complete.
TEST(Schedule, AGroupMayBeFrozenInPart) {
  class Block : public nn::Module {
   public:
    Block() : frozen(4), trained(4) {
      frozen.weight.value().replace(DTensor(Tensor::full({4}, 3.0)));
      frozen.weight.value().set_requires_grad(false);
      add_child("frozen", frozen);
      add_child("trained", trained);
    }
    std::string_view kind() const override { return "Block"; }
    Scale frozen, trained;

   protected:
    DTensor forward(const nn::Inputs& in) override { return trained(frozen(in[0])); }
  };
  class Net : public nn::Module {
   public:
    Net() {
      for (int i = 0; i < 3; ++i) add_child("b" + std::to_string(i), blocks[i]);
    }
    std::string_view kind() const override { return "Net"; }
    Block blocks[3];

   protected:
    DTensor forward(const nn::Inputs& in) override {
      return blocks[2](blocks[1](blocks[0](in[0])));
    }
  };
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Net net;
    for (Block& block : net.blocks) fully_shard(block, mesh["dp"]);
    fully_shard(net, mesh["dp"]);
    for (int step = 1; step <= 2; ++step) {
      reset_peak();
      DTensor loss = sum(net(row_per_rank(mesh, 4, [](int r) { return r + 1; })));
      loss.backward();
      EXPECT_LE(stats().peak_groups, 2);
      EXPECT_EQ(stats().live_groups, 0);
      for (const Block& block : net.blocks) {  // 3 * 3 * 3 * (1 + 2), added up over steps
        EXPECT_EQ(values(block.trained.weight.value().grad()),
                  std::vector<float>(4, 81.0F * static_cast<float>(step)));
      }
    }
  });
}

// pytorch#162692, torchtitan#4167: means divide by the global count, batches may be uneven and
// empty, and a second backward adds.
TEST(Schedule, MeansAreGlobalAndASecondBackwardAdds) {
  run_ranks(4, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 4}});
    const auto loss_of = [&](Chain& net, const Tensor& batch) {
      const DTensor y = net(distribute(batch, mesh, {Shard(0)}));
      return mean(mul(y, y));
    };
    Chain net(0, 1);
    net.own.weight.value().replace(DTensor(Tensor::full({1}, 2.0)));
    shard_all(net, mesh["dp"]);
    const Tensor five = Tensor::of<float>({1, 2, 3, 4, 5}, {5, 1});
    for (const float want : {44.0F, 88.0F}) {
      DTensor loss = loss_of(net, five);
      EXPECT_FLOAT_EQ(static_cast<float>(loss.item()), 44.0F);
      loss.backward();
      EXPECT_EQ(values(net.own.weight.value().grad()), std::vector<float>{want});
    }
    net.own.weight.value().set_grad({});
    DTensor loss = loss_of(net, Tensor::of<float>({1, 2, 3}, {3, 1}));  // 1,1,1,0
    EXPECT_FLOAT_EQ(static_cast<float>(loss.item()), 56.0F / 3);
    loss.backward();
    EXPECT_FLOAT_EQ(values(net.own.weight.value().grad())[0], 56.0F / 3);
  });
}

int gathers_of(const std::string& name) {
  return static_cast<int>(std::ranges::count_if(ledger().entries(), [&](const LedgerEntry& e) {
    return e.kind == StepKind::kAllGather && e.label == name;
  }));
}

// By hand: one gather for several forwards and backwards, until it is told to go or a parameter is
// written.
TEST(Schedule, AGroupIsGatheredAndFreedByHand) {
  for (const Zero zero : {Zero::kParameters, Zero::kGradients, Zero::kState}) {
    run_ranks(2, [&](comm::Comm& world) {
      const DeviceMesh mesh(world, {{"dp", 2}});
      Chain net(2, 4);
      shard_all(net, mesh["dp"], {.zero = zero});
      Scale& part = *net.parts[0];
      std::shared_ptr<Storage> memory;
      part.add_pre_hook([&](const nn::Inputs& in) {
        memory = part.weight.use().local_tensor().storage();
        return in;
      });
      const auto loss = [&] {
        return sum(net(row_per_rank(mesh, 4, [](int r) { return r + 1; })));
      };
      optim::SGD optimizer(net.parameters(), {.lr = 1.0});
      EXPECT_THROW(unshard(*std::make_unique<Scale>(4)), PlacementError);
      reshard(part);  // nothing stays
      ledger().clear();
      unshard(part);
      unshard(part);
      for (int k = 0; k < 3; ++k) loss().backward();
      EXPECT_EQ(gathers_of("parts.0.weight"), 1);
      EXPECT_FALSE(memory->is_empty());
      EXPECT_EQ(values(part.weight.value().grad()), std::vector<float>(4, 9.0F));
      EXPECT_EQ(stats().live_groups, 0);  // those that stay are not counted
      reshard(part);
      EXPECT_TRUE(memory->is_empty());
      optimizer.zero_grad();
      // Freed between forward and backward: gathered again there.
      ledger().clear();
      unshard(part);
      DTensor freed = loss();
      reshard(part);
      EXPECT_TRUE(memory->is_empty());
      freed.backward();
      EXPECT_EQ(gathers_of("parts.0.weight"), 2);
      EXPECT_TRUE(memory->is_empty());
      EXPECT_EQ(values(part.weight.value().grad()), std::vector<float>(4, 3.0F));
      // A step makes it out of date.
      unshard(part);
      loss();
      optimizer.step();  // w = 1 - 3
      optimizer.zero_grad();
      loss().backward();
      EXPECT_EQ(values(part.weight.value().grad()), std::vector<float>(4, 3.0F * 4));
    });
  }
}

TEST(Schedule, AGraphMayBeRunTwice) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Chain net(3, 4);
    shard_all(net, mesh["dp"]);
    DTensor loss = sum(net(row_per_rank(mesh, 4, [](int r) { return r + 1; })));
    loss.backward({.retain_graph = true});
    loss.backward();
    EXPECT_EQ(stats().live_groups, 0);
    EXPECT_EQ(values(net.parts[1]->weight.value().grad()), std::vector<float>(4, 6.0F));
  });
}

TEST(Schedule, AGraphMayOutliveItsModel) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    DTensor loss;
    nn::Parameter weight;
    {
      Chain net(2, 4);
      shard_all(net, mesh["dp"]);
      weight = net.parts[1]->weight;
      loss = sum(net(row_per_rank(mesh, 4, [](int r) { return r + 1; })));
    }
    loss.backward();
    EXPECT_EQ(values(weight.value().grad()), std::vector<float>(4, 3.0F));
  });
}

}  // namespace
}  // namespace dtensor::fsdp
