// fully_shard with LoRA, slow tiers, deferred init and checkpoints; and the trace of a step.

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "dtensor/base/file_allocator.h"
#include "dtensor/checkpoint/hugging_face.h"
#include "dtensor/checkpoint/load.h"
#include "dtensor/checkpoint/save.h"
#include "dtensor/fsdp/fully_shard.h"
#include "dtensor/fsdp/trace.h"
#include "dtensor/nn/deferred_init.h"
#include "dtensor/nn/layers.h"
#include "dtensor/nn/lora.h"
#include "dtensor/ops/ops.h"
#include "dtensor/optim/adamw.h"
#include "dtensor/optim/clip_grad_norm.h"
#include "dtensor/optim/grad_scaler.h"
#include "dtensor/optim/sgd.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tests/support/models.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/support/values.h"

namespace dtensor::fsdp {
namespace {

using testing::random;
using testing::rows;
using testing::run_ranks;
using testing::Stack;

Stack::Sizes sizes() { return {.width = 4, .hidden = 6, .out = 2, .blocks = 3}; }

std::unique_ptr<Stack> lora_net() {
  auto net = std::make_unique<Stack>(sizes());
  nn::init_normal(*net, 3, 0.4);
  nn::add_lora(*net, {.rank = 2});
  return net;
}

std::vector<float> train_lora(Stack& net, const DeviceMesh& mesh, int steps) {
  optim::AdamW optimizer(nn::trainable_parameters(net), {.lr = 0.05});
  std::vector<float> losses;
  for (int step = 0; step < steps; ++step) {
    const DTensor x = rows(random({7, 4}, 1), mesh, {"dp"});
    DTensor loss = testing::mean_square(net(x), rows(random({7, 2}, 2), mesh, {"dp"}));
    loss.backward();
    losses.push_back(static_cast<float>(loss.item()));
    optimizer.step();
    optimizer.zero_grad();
    EXPECT_EQ(stats().live_groups, 0);
  }
  return losses;
}

TEST(Compose, LoraTrainsTheAdaptersAndReducesNothingElse) {
  const std::unique_ptr<Stack> plain = lora_net();
  const testing::Values before = testing::parameter_values(*plain);
  const std::vector<float> want = train_lora(*plain, {}, 10);
  EXPECT_LT(want.back(), want.front());
  run_ranks(3, [&](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 3}});
    const std::unique_ptr<Stack> net = lora_net();
    for (auto& block : net->blocks) fully_shard(*block, mesh["dp"]);
    fully_shard(*net, mesh["dp"]);
    testing::ledger().clear();
    const std::vector<float> losses = train_lora(*net, mesh, 10);
    std::set<std::string> reduced;
    for (const LedgerEntry& e : testing::ledger().entries()) {
      if (e.kind == StepKind::kReduceScatter) reduced.insert(e.label);
    }
    EXPECT_EQ(reduced.size(), 14U);  // two of each of 3 * 2 + 1
    for (const std::string& name : reduced) EXPECT_NE(name.find("lora"), std::string::npos) << name;
    EXPECT_LT(testing::worst(losses, want), 1e-5);
    const testing::Values after = testing::parameter_values(*net);
    for (const auto& [name, values] : after) {
      const bool adapter = name.find("lora") != std::string::npos;
      EXPECT_EQ(values == before.at(name), !adapter) << name;
    }
    EXPECT_LT(testing::worst(after, testing::parameter_values(*plain)), 1e-4);
  });
}

void shard_over(Stack& net, const MeshSlice& dims, const Options& options = {}) {
  for (auto& block : net.blocks) fully_shard(*block, dims, options);
  fully_shard(net, dims, options);
}

void train(Stack& net, const DeviceMesh& mesh, optim::Optimizer& optimizer, int steps) {
  for (int step = 0; step < steps; ++step) {
    DTensor loss = mean(net(rows(random({7, 4}, static_cast<uint64_t>(step)), mesh, {"dp"})));
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
  }
}

// The same bits: only where shards and state lie differs.
TEST(Compose, ShardsAndOptimizerStateInAFileGiveTheSameBits) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    const auto slow = std::make_shared<FileAllocator>(::testing::TempDir());
    Stack fast(sizes());
    Stack net(sizes());
    nn::init_normal(fast, 4, 0.5);
    nn::init_normal(net, 4, 0.5);
    shard_over(fast, mesh["dp"]);
    shard_over(net, mesh["dp"], {.offload = slow});
    int64_t mine = 0;
    for (const nn::Parameter& p : net.parameters()) mine += p.value().local_tensor().size_bytes();
    EXPECT_EQ(slow->stats().live_bytes, mine);
    optim::AdamW a(fast.parameters(), {.lr = 0.01});
    optim::AdamW b(net.parameters(), {.lr = 0.01});
    train(fast, mesh, a, 5);
    train(net, mesh, b, 5);
    EXPECT_EQ(testing::parameter_values(net), testing::parameter_values(fast));
    EXPECT_EQ(slow->stats().live_bytes, 3 * mine);  // with the two states of AdamW
    for (int k = 0; k < 2; ++k) {                   // the second is added
      DTensor loss = mean(net(rows(random({7, 4}, 1), mesh, {"dp"})));
      loss.backward();
      EXPECT_EQ(slow->stats().live_bytes, 4 * mine);  // and the gradients
    }
    add_grad_hook(net.head.weight.value(), [](const DTensor& g) { return mul(g, 1.0); });
    b.zero_grad();
    DTensor loss = mean(net(rows(random({7, 4}, 1), mesh, {"dp"})));
    loss.backward();
    EXPECT_EQ(slow->stats().live_bytes, 4 * mine);
  });
}

// Each rank describes the model, shards it, and reads its pieces of a checkpoint: of another mesh.
TEST(Compose, ADescribedModelLoadsItsShardsFromACheckpoint) {
  const std::string run = ::testing::TempDir() + "/described";
  Stack plain(sizes());
  nn::init_normal(plain, 8, 0.5);
  run_ranks(2, [&](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Stack net(sizes());
    nn::init_normal(net, 8, 0.5);
    shard_over(net, mesh["dp"]);
    checkpoint::save(run, 1, {.model = net});
  });
  run_ranks(3, [&](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 3}});
    std::unique_ptr<Stack> net;
    {
      const nn::DeferredInit deferred;
      net = std::make_unique<Stack>(sizes());
    }
    const auto slow = std::make_shared<FileAllocator>(::testing::TempDir());
    shard_over(*net, mesh["dp"], {.offload = slow});
    EXPECT_EQ(slow->stats().live_bytes, 0);
    const DTensor x = rows(random({6, 4}, 1), mesh, {"dp"});
    EXPECT_THROW((*net)(x), ArgumentError);
    nn::materialize(*net);
    EXPECT_GT(slow->stats().live_bytes, 0);
    EXPECT_EQ(checkpoint::load(run, {.model = *net}), 1);
    EXPECT_EQ(testing::parameter_values(*net), testing::parameter_values(plain));
    EXPECT_LT(testing::worst(testing::values((*net)(x)),
                             testing::piece(plain(DTensor(random({6, 4}, 1))))),
              1e-5);
  });
}

TEST(Compose, AModelOfATerabyteIsShardedWithoutMemory) {
  run_ranks(4, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 4}});
    std::unique_ptr<Stack> net;
    {
      const nn::DeferredInit deferred;  // 8 blocks of two weights of 64 GiB
      net = std::make_unique<Stack>(
          Stack::Sizes{.width = 1 << 17, .hidden = 1 << 17, .out = 2, .blocks = 8});
    }
    shard_over(*net, mesh["dp"]);
    int64_t whole = 0;
    int64_t mine = 0;
    for (const nn::Parameter& p : net->parameters()) {
      whole += p.value().numel() * 4;
      mine += p.value().local_tensor().size_bytes();
    }
    EXPECT_GT(whole, int64_t{1} << 40);
    EXPECT_NEAR(static_cast<double>(mine) / static_cast<double>(whole), 0.25, 1e-6);
    EXPECT_LT(Context::current().slot<CurrentAllocator>().allocator->stats().peak_bytes, 1 << 20);
  });
}

// What is gathered and stays (ZeRO-1) is out of date on all ranks after a load, also on one whose
// shard has no element.
TEST(Compose, AfterALoadEveryRankGathersAnew) {
  const std::string dir = ::testing::TempDir() + "load_every_rank";
  run_ranks(3, [&](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 3}});
    const DTensor x = rows(random({6, 4}, 1), mesh, {"dp"});
    nn::Linear first(4, 2);  // rows 1, 1, 0
    nn::Linear net(4, 2);
    nn::init_normal(first, 1);
    nn::init_normal(net, 2);
    for (nn::Linear* l : {&first, &net}) fully_shard(*l, mesh["dp"], {.zero = Zero::kState});
    checkpoint::save(dir, 1, {.model = first});
    const std::vector<float> before = testing::values(net(x));
    const std::vector<float> want = testing::values(first(x));
    checkpoint::load(dir, {.model = net});
    EXPECT_EQ(testing::values(net(x)), want);
    EXPECT_NE(before, want);
    nn::Linear third(4, 2);
    fully_shard(third, mesh["dp"], {.zero = Zero::kState});
    EXPECT_EQ(testing::values(third(x)), std::vector<float>(12, 0.0F));
    checkpoint::export_hugging_face(dir + "_hf", net);
    checkpoint::import_hugging_face(dir + "_hf", third);
    EXPECT_EQ(testing::values(third(x)), want);
  });
}

// Gradients near 1e-9 are 0 in float16, whose least number is 6e-8; scaled they are there.
TEST(Compose, SmallGradientsSurviveFloat16WhereTheLossIsScaled) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Stack exact(sizes());
    Stack net(sizes());
    nn::init_normal(exact, 4, 0.5);
    nn::init_normal(net, 4, 0.5);
    shard_over(exact, mesh["dp"]);
    shard_over(net, mesh["dp"], {.param_dtype = DType::kFloat16, .reduce_dtype = DType::kFloat16});
    const DTensor x = rows(random({7, 4}, 1), mesh, {"dp"});
    const auto loss_of = [&](Stack& model) {
      return mul(mean(cast(model(x), DType::kFloat32)), 1e-9);
    };
    DTensor want = loss_of(exact);
    want.backward();
    DTensor lost = loss_of(net);
    lost.backward();
    EXPECT_EQ(optim::grad_norm(net.parameters(), {.norm_type = 1.0}), 0.0);
    optim::SGD optimizer(net.parameters(), {.lr = 0.0});
    optimizer.zero_grad();
    optim::GradScaler scaler({.scale = 1e9});
    DTensor loss = scaler.scale(loss_of(net));
    loss.backward();
    scaler.unscale(net.parameters());
    EXPECT_GT(optim::grad_norm(net.parameters(), {.norm_type = 1.0}), 1e-9);
    EXPECT_LT(testing::worst(testing::gradient_values(net), testing::gradient_values(exact)),
              5e-12);  // of gradients near 1e-9, by sums in 11 bits
    EXPECT_TRUE(scaler.step(optimizer));
    scaler.update();
    // One that overflows on some rank is left out on all.
    optim::GradScaler far({.scale = 1e38});
    DTensor too_large = far.scale(loss_of(net));
    too_large.backward();
    EXPECT_FALSE(far.step(optimizer));
    EXPECT_EQ(optimizer.steps(), 1);
  });
}

TEST(Compose, ATraceTellsWhoWasGatheredComputedAndReduced) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Stack net(sizes());
    shard_over(net, mesh["dp"]);
    auto& trace = Context::current().slot<Trace>();
    const auto step = [&] {
      DTensor loss = mean(net(rows(random({6, 4}, 1), mesh, {"dp"})));
      loss.backward();
    };
    step();
    EXPECT_TRUE(trace.events.empty());  // nobody asked
    trace.recording = true;
    step();
    const auto count = [&](Phase phase, const std::string& group) {
      return std::ranges::count_if(
          trace.events, [&](const TraceEvent& e) { return e.phase == phase && e.group == group; });
    };
    for (const std::string group : {"", "blocks.0", "blocks.1", "blocks.2"}) {
      EXPECT_EQ(count(Phase::kGather, group), group.empty() ? 1 : 2) << group;
      EXPECT_EQ(count(Phase::kForward, group), 1) << group;
      EXPECT_EQ(count(Phase::kBackward, group), 1) << group;
      EXPECT_EQ(count(Phase::kReduce, group), 1) << group;
    }
    EXPECT_EQ(trace.events.size(), 7U + 3 * 4);
    const int64_t bytes = (4 * 6 + 6 + 6 * 4 + 4) * 4;  // of a block
    for (const TraceEvent& e : trace.events) {
      EXPECT_LE(e.begin, e.end);
      if (e.group.empty()) continue;
      const bool moves = e.phase == Phase::kGather || e.phase == Phase::kReduce;
      EXPECT_EQ(e.bytes, moves ? bytes : 0);
    }
    const std::string text = to_text(trace);
    EXPECT_NE(text.find("gather    blocks.1  232 bytes"), std::string::npos) << text;
    EXPECT_NE(text.find("forward   (root)"), std::string::npos) << text;
    const auto json = nlohmann::json::parse(to_perfetto(trace, world.rank()));
    int complete = 0;
    for (const auto& e : json.at("traceEvents")) {
      EXPECT_EQ(e.at("pid"), world.rank());
      if (e.at("ph") == "X") ++complete;
    }
    EXPECT_EQ(complete, 19);
  });
}

}  // namespace
}  // namespace dtensor::fsdp
