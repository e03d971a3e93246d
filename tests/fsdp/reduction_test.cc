// What is summed over whom, and in which dtype: replicas, deferred microbatches.

#include "dtensor/fsdp/reduction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/fsdp/fully_shard.h"
#include "dtensor/tensor/recompute.h"
#include "dtensor/tests/fsdp/chain.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/support/values.h"

namespace dtensor::fsdp {
namespace {

using testing::Chain;
using testing::ledger;
using testing::row_per_rank;
using testing::run_ranks;
using testing::Scale;
using testing::shard_all;
using testing::values;

double ten_to(int n) { return n == 0 ? 1 : 10 * ten_to(n - 1); }

// Rank r brings 10^r, so that the sum tells whose gradients are in it.
TEST(Reduction, AParameterThatSomeReplicasUseGetsItsGradientEverywhere) {
  const std::vector<std::vector<int>> users{{0}, {3}, {0, 1}, {2, 3}, {1, 2}, {0, 1, 3}, {}};
  for (const int groups : {0, 2}) {  // in the root's group, and in one of its own
    for (const std::vector<int>& who : users) {
      run_ranks(4, [&](comm::Comm& world) {
        const DeviceMesh mesh(world, {{"rep", 2}, {"dp", 2}});
        Chain net(groups, 5);
        shard_all(net, mesh["dp"]);
        Scale& odd = groups == 0 ? net.own : *net.parts[1];
        odd.used = std::ranges::find(who, world.rank()) != who.end();
        float want = 0;
        for (const int r : who) want += static_cast<float>(ten_to(r));
        for (int step = 1; step <= 2; ++step) {
          DTensor loss = sum(net(row_per_rank(mesh, 5, ten_to)));
          loss.backward();
          EXPECT_EQ(values(odd.weight.value().grad()),
                    std::vector<float>(5, want * static_cast<float>(step)));
          if (groups > 0) {
            EXPECT_EQ(values(net.parts[0]->weight.value().grad()),
                      std::vector<float>(5, 1111.0F * static_cast<float>(step)));
          }
        }
        EXPECT_EQ(stats().live_reductions, 0);
      });
    }
  }
}

// On a mesh dim on which the batch is whole every rank has the whole gradient: it is not summed.
TEST(Reduction, AnUnusedParameterIsNotSummedWhereTheBatchIsWhole) {
  for (const int groups : {0, 2}) {
    run_ranks(4, [&](comm::Comm& world) {
      const DeviceMesh mesh(world, {{"dp", 2}, {"tp", 2}});
      Chain net(groups, 5);
      shard_all(net, mesh["dp"]);
      Scale& odd = groups == 0 ? net.own : *net.parts[1];
      odd.used = mesh.coordinate("dp") == 1;
      // Rows 0 and 1 for dp 0, 2 and 3 for dp 1.
      DTensor loss = sum(net(row_per_rank(mesh, 5, ten_to, {Shard(0), Replicate()})));
      ledger().clear();
      loss.backward();
      EXPECT_EQ(values(odd.weight.value().grad()), std::vector<float>(5, 1100.0F));
      EXPECT_EQ(testing::calls(StepKind::kAllReduce, "fsdp"), 0);
    });
  }
}

// Micro-batches of two replicas, the last of which one replica does not use.
TEST(Reduction, AnUnusedParameterOfDeferredMicrobatchesIsSummedOverReplicas) {
  run_ranks(4, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"rep", 2}, {"dp", 2}});
    Chain net(2, 5);
    shard_all(net, mesh["dp"]);
    for (int k = 0; k < 3; ++k) {
      net.parts[1]->used = world.rank() == k;
      DTensor loss = sum(net(row_per_rank(mesh, 5, ten_to)));
      loss.backward({.defer = k < 2});
    }
    EXPECT_EQ(values(net.parts[1]->weight.value().grad()), std::vector<float>(5, 111.0F));
  });
}

// 256 + 1 and 1 + 1 summed over shards, then over replicas: 259, which bf16 rounds to 260. Rounded
// in between it would be 256 + 2.
TEST(Reduction, BetweenShardsAndReplicasNothingIsRounded) {
  run_ranks(4, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"rep", 2}, {"dp", 2}});
    Chain net(1, 6);
    for (Scale* s : {&net.own, net.parts[0].get()}) {
      s->weight.value().replace(DTensor(Tensor::full({6}, 1.0, DType::kBFloat16)));
    }
    shard_all(net, mesh["dp"], {.reduce_dtype = DType::kFloat32});
    const DTensor x = row_per_rank(mesh, 6, [](int r) { return r == 0 ? 256 : 1; });
    DTensor loss = sum(cast(net(cast(x, DType::kBFloat16)), DType::kFloat32));
    loss.backward();
    EXPECT_EQ(net.own.weight.value().grad().dtype(), DType::kBFloat16);
    EXPECT_EQ(values(net.own.weight.value().grad()), std::vector<float>(6, 260.0F));
    EXPECT_EQ(values(net.parts[0]->weight.value().grad()), std::vector<float>(6, 260.0F));
  });
}

// In bf16 256 + 1 is 256.
TEST(Reduction, DeferredSixteenBitGradientsAddUpInFloat32) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Chain net(1, 6);
    shard_all(net, mesh["dp"], {.param_dtype = DType::kBFloat16});
    for (const float first : {256.0F, 1.0F, 1.0F, 2.0F}) {
      const DTensor x = row_per_rank(mesh, 6, [&](int r) { return r == 0 ? first : 0; });
      DTensor loss = sum(cast(net(x), DType::kFloat32));
      loss.backward({.defer = first != 2.0F});
    }
    EXPECT_EQ(values(net.own.weight.value().grad()), std::vector<float>(6, 260.0F));
    EXPECT_EQ(values(net.parts[0]->weight.value().grad()), std::vector<float>(6, 260.0F));
  });
}

// Each block of a group of its own, computed again in backward.
class Again : public nn::Module {
 public:
  Again() {
    for (int i = 0; i < 3; ++i) add_child("parts." + std::to_string(i), parts[i]);
    add_child("own", own);
  }
  std::string_view kind() const override { return "Again"; }
  Scale parts[3]{Scale(5), Scale(5), Scale(5)};
  Scale own{5};

 protected:
  DTensor forward(const nn::Inputs& in) override {
    DTensor x = own(in[0]);
    for (Scale& part : parts) {
      x = recomputed([&part](std::span<const DTensor> z) { return part(z[0]); }, {x});
    }
    return x;
  }
};

TEST(Reduction, DeferredMicrobatchesOfWhatIsComputedAgainAreReducedOnce) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Again net;
    for (Scale& part : net.parts) fully_shard(part, mesh["dp"]);
    fully_shard(net, mesh["dp"]);
    ledger().clear();
    for (int k = 0; k < 3; ++k) {
      DTensor loss = sum(net(row_per_rank(mesh, 5, [](int r) { return r + 1; })));
      loss.backward({.defer = k < 2});
      EXPECT_EQ(stats().live_groups, 0);
    }
    EXPECT_EQ(testing::entries(StepKind::kReduceScatter, "fsdp"), 4);
    for (Scale& part : net.parts) {
      EXPECT_EQ(values(part.weight.value().grad()), std::vector<float>(5, 9.0F));
    }
    EXPECT_EQ(values(net.own.weight.value().grad()), std::vector<float>(5, 9.0F));
  });
}

}  // namespace
}  // namespace dtensor::fsdp
