// The collectives of one training step are those that the placements imply, and no others.

#include "dtensor/tensor/ledger.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <tuple>

#include "dtensor/examples/llama/parallel.h"
#include "dtensor/examples/llama/text.h"
#include "dtensor/optim/adamw.h"
#include "dtensor/optim/clip_grad_norm.h"
#include "dtensor/tests/examples/golden.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::testing {
namespace {

using examples::DataParallel;

// (kind, mesh dims by name) -> entries that moved something, and the Comm calls they moved in.
struct Counts {
  int entries = 0;
  std::map<int64_t, int> calls;
};
using Table = std::map<std::pair<StepKind, std::string>, Counts>;

struct Phases {
  Table forward, backward, rest;
};

Table take(Ledger& ledger, const DeviceMesh& mesh) {
  Table table;
  for (const auto& e : ledger.entries()) {
    if (e.kind == StepKind::kLocal) continue;
    std::string dims;
    for (const int d : e.mesh_dims) dims += (dims.empty() ? "" : ",") + mesh.layout().name(d);
    Counts& c = table[{e.kind, dims}];
    ++c.entries;
    ++c.calls[e.call];
  }
  ledger.clear();
  return table;
}

Phases one_step(const Golden& golden, const DeviceMesh& mesh, DataParallel mode) {
  examples::Llama model(examples::read_config(golden.dir + "/config.json"));
  parallelize(model, mesh, {.data_parallel = mode});
  nn::init_normal(model, 1);
  const examples::Text text(golden.text);
  const auto batch = text.batch(0, golden.batch, golden.seq);
  const DTensor tokens = examples::place_batch(batch.tokens, mesh);
  const DTensor targets = examples::place_batch(batch.targets, mesh);
  optim::AdamW optimizer(model.parameters(), {});
  Ledger& ledger = Context::current().slot<Ledger>();
  ledger.clear();
  Phases phases;
  DTensor loss = cross_entropy(model(tokens), targets, {.sharded_classes = true});
  phases.forward = take(ledger, mesh);
  loss.backward();
  phases.backward = take(ledger, mesh);
  static_cast<void>(loss.item());
  optim::clip_grad_norm(optimizer.parameters(), 1.0, {.mesh = mesh});
  optimizer.step();
  phases.rest = take(ledger, mesh);
  return phases;
}

constexpr int kLayers = 2;
constexpr int kLayerParameters = 9;  // seven products, two norms
constexpr int kRootParameters = 3;   // embedding, last norm, head

TEST(Ledger, TensorParallelTakesTwoAllReducesALayerAndOneEachWay) {
  const Golden golden = read_golden("tiny");  // once: it writes a file
  run_ranks(2, [&](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"tp", 2}});
    Phases p = one_step(golden, mesh, DataParallel::kFullyShard);
    const std::pair all_reduce{StepKind::kAllReduce, std::string("tp")};
    // Two a layer, one of the embedding; two of the loss with cut classes.
    EXPECT_EQ(p.forward[all_reduce].entries, 2 * kLayers + 1 + 2);
    EXPECT_EQ(p.forward.size(), 1U);
    EXPECT_EQ(p.backward[all_reduce].entries, 2 * kLayers + 1);
    EXPECT_EQ(p.backward.size(), 1U);
    EXPECT_EQ(p.rest[all_reduce].entries, 2);  // the printed loss, the norm
  });
}

TEST(Ledger, FullyShardGathersTwiceAndReducesOnceInOneCallPerGroup) {
  const Golden golden = read_golden("tiny");  // once: it writes a file
  run_ranks(3, [&](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 3}});
    Phases p = one_step(golden, mesh, DataParallel::kFullyShard);
    const std::pair gather{StepKind::kAllGather, std::string("dp")};
    const std::pair scatter{StepKind::kReduceScatter, std::string("dp")};
    EXPECT_EQ(p.forward[gather].entries, kLayers * kLayerParameters + kRootParameters);
    EXPECT_EQ(p.forward[gather].calls.size(), size_t{kLayers + 1});
    EXPECT_EQ(p.backward[gather].entries, kLayers * kLayerParameters);  // the root's stay
    EXPECT_EQ(p.backward[gather].calls.size(), size_t{kLayers});
    EXPECT_EQ(p.backward[scatter].entries, kLayers * kLayerParameters + kRootParameters);
    EXPECT_EQ(p.backward[scatter].calls.size(), size_t{kLayers + 1});
    EXPECT_EQ(p.forward.size(), 1U);
    EXPECT_EQ(p.backward.size(), 2U);
  });
}

TEST(Ledger, ReplicasReduceEveryGradientOnce) {
  const Golden golden = read_golden("tiny");  // once: it writes a file
  run_ranks(2, [&](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Phases p = one_step(golden, mesh, DataParallel::kReplicate);
    const std::pair all_reduce{StepKind::kAllReduce, std::string("dp")};
    EXPECT_TRUE(p.forward.empty());
    EXPECT_EQ(p.backward[all_reduce].entries, kLayers * kLayerParameters + kRootParameters);
    EXPECT_EQ(p.rest[all_reduce].entries, 2);  // the printed loss, the norm
  });
}

TEST(Ledger, BothAtOnceAddUp) {
  const Golden golden = read_golden("tiny");  // once: it writes a file
  run_ranks(4, [&](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}, {"tp", 2}});
    Phases p = one_step(golden, mesh, DataParallel::kFullyShard);
    EXPECT_EQ((p.forward[{StepKind::kAllReduce, "tp"}].entries), 2 * kLayers + 1 + 2);
    EXPECT_EQ((p.forward[{StepKind::kAllGather, "dp"}].entries),
              kLayers * kLayerParameters + kRootParameters);
    EXPECT_EQ((p.backward[{StepKind::kAllReduce, "tp"}].entries), 2 * kLayers + 1);
    EXPECT_EQ((p.backward[{StepKind::kReduceScatter, "dp"}].entries),
              kLayers * kLayerParameters + kRootParameters);
    EXPECT_EQ((p.rest[{StepKind::kAllReduce, "dp,tp"}].entries), 2);
  });
}

TEST(Ledger, OnAMeshOfOneRankIsEmpty) {
  const Golden golden = read_golden("tiny");  // once: it writes a file
  run_ranks(1, [&](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 1}, {"tp", 1}});
    const Phases p = one_step(golden, mesh, DataParallel::kFullyShard);
    EXPECT_TRUE(p.forward.empty() && p.backward.empty() && p.rest.empty());
  });
}

}  // namespace
}  // namespace dtensor::testing
