// Every setting of fully_shard trains as one process does. The table is printed.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/base/file_allocator.h"
#include "dtensor/fsdp/fully_shard.h"
#include "dtensor/nn/deferred_init.h"
#include "dtensor/nn/mixed_precision.h"
#include "dtensor/optim/adamw.h"
#include "dtensor/optim/clip_grad_norm.h"
#include "dtensor/tensor/recompute.h"
#include "dtensor/tests/support/delayed_transport.h"
#include "dtensor/tests/support/models.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/support/values.h"
#include "dtensor/tp/parallelize_module.h"

namespace dtensor::fsdp {
namespace {

using testing::random;
using testing::rows;
using testing::run_ranks;
using testing::worst;

constexpr int64_t kRows = 7;  // does not divide by 2, 3 or 4
constexpr int64_t kWidth = 3;
constexpr int kSteps = 3;

enum class Recompute { kNone, kInside, kAround };

// down(relu(up(x))), the middle computed again in backward or not; `up` may be frozen.
class Block : public nn::Module {
 public:
  explicit Block(Recompute recompute)
      : up(kWidth, 5, {.bias = true}), down(5, kWidth, {.bias = true}), recompute_(recompute) {
    add_child("up", up);
    add_child("down", down);
  }
  std::string_view kind() const override { return "Block"; }
  nn::Linear up, down;

 protected:
  DTensor forward(const nn::Inputs& in) override {
    if (recompute_ != Recompute::kInside) return compute(in[0]);
    return recomputed([this](std::span<const DTensor> x) { return compute(x[0]); }, {in[0]});
  }

 private:
  DTensor compute(const DTensor& x) { return down(relu(up(x))); }
  Recompute recompute_;
};

class Net : public nn::Module {
 public:
  explicit Net(Recompute recompute) : head(kWidth, 2), recompute_(recompute) {
    for (int i = 0; i < 4; ++i) {
      blocks.push_back(std::make_unique<Block>(recompute));
      add_child("blocks." + std::to_string(i), *blocks.back());
    }
    add_child("head", head);
  }
  std::string_view kind() const override { return "Net"; }
  std::vector<std::unique_ptr<Block>> blocks;
  nn::Linear head;

 protected:
  DTensor forward(const nn::Inputs& in) override {
    DTensor x = in[0];
    for (auto& block : blocks) {
      const bool again = recompute_ == Recompute::kAround && &block != &blocks[0];
      Block* b = block.get();
      const DTensor y =
          again ? recomputed([b](std::span<const DTensor> z) { return (*b)(z[0]); }, {x})
                : (*block)(x);
      x = add(x, y);
    }
    return head(x);
  }

 private:
  Recompute recompute_;
};

struct Setting {
  std::string name;
  std::vector<MeshDim> mesh = {};
  std::vector<std::string> over = {};  // what the batch is cut over
  std::vector<std::string> dims = {};  // of fully_shard
  std::function<Options(const DeviceMesh&)> options = [](const DeviceMesh&) { return Options{}; };
  int microbatches = 1;
  bool defer = false;
  Recompute recompute = Recompute::kNone;
  bool frozen = false;    // the blocks' `up`
  bool deferred = false;  // DeferredInit
  bool tp = false;
  bool prefetch = false;
  bool half = false;  // compared with one process in bf16
  std::chrono::microseconds delay{0};
  double tolerance = 2e-5;
};

struct Result {
  std::vector<float> losses;
  testing::Values gradients;  // of the first step
  testing::Values final;
};

void wrap(Net& net, const DeviceMesh& mesh, const Setting& s) {
  if (s.tp) {
    tp::parallelize_module(net, mesh["tp"],
                           {{"blocks.*.up", tp::Colwise{}}, {"blocks.*.down", tp::Rowwise{}}});
  }
  MeshSlice dims{mesh, {}};
  for (const std::string& name : s.dims) dims.dims.push_back(mesh.layout().dim(name));
  const Options options = s.options(mesh);
  for (auto& block : net.blocks) {
    Options inner = options;
    inner.output_dtype = {};
    fully_shard(*block, dims, inner);
  }
  fully_shard(net, dims, options);
  if (!s.prefetch) return;
  set_modules_to_forward_prefetch(*net.blocks[0], {net.blocks[1].get(), net.blocks[2].get()});
  set_modules_to_backward_prefetch(*net.blocks[3], {net.blocks[2].get(), net.blocks[1].get()});
}

std::unique_ptr<Net> make_net(const DeviceMesh& mesh, const Setting& s) {
  std::unique_ptr<Net> net;
  {
    const ScopedSlot<nn::ParameterMemory> memory(nn::ParameterMemory{.deferred = s.deferred});
    net = std::make_unique<Net>(s.recompute);
  }
  for (auto& block : net->blocks) {
    block->up.weight.value().set_requires_grad(!s.frozen);
    block->up.bias.value().set_requires_grad(!s.frozen);
  }
  if (!s.deferred) nn::init_normal(*net, 42, 0.5);
  if (mesh.defined()) wrap(*net, mesh, s);
  if (!mesh.defined() && s.half) nn::mixed_precision(*net, DType::kBFloat16);
  if (s.deferred) {
    nn::materialize(*net);
    nn::init_normal(*net, 42, 0.5);
  }
  return net;
}

// The sum over micro-batches of sum((y - t)²) / (all elements).
Result train(const DeviceMesh& mesh, const Setting& s) {
  const std::unique_ptr<Net> net = make_net(mesh, s);
  optim::AdamW optimizer(net->parameters(), {.lr = 0.01});
  Result result;
  for (uint64_t step = 0; step < kSteps; ++step) {
    const Tensor x = random({kRows, kWidth}, 2 * step);
    const Tensor t = random({kRows, 2}, 2 * step + 1);
    double total = 0.0;
    for (int k = 0; k < s.microbatches; ++k) {
      const int64_t begin = kRows * k / s.microbatches;
      const int64_t count = kRows * (k + 1) / s.microbatches - begin;
      const DTensor y = (*net)(rows(x.narrow(0, begin, count).contiguous(), mesh, s.over));
      const DTensor want = rows(t.narrow(0, begin, count).contiguous(), mesh, s.over);
      const DTensor difference = sub(cast(y, DType::kFloat32), want);
      DTensor loss = mul(sum(mul(difference, difference)), 1.0 / (2 * kRows));
      loss.backward({.defer = s.defer && k + 1 < s.microbatches});
      total += loss.item();
      EXPECT_EQ(stats().live_groups, 0) << s.name;
      EXPECT_EQ(stats().live_reductions, 0) << s.name;
    }
    result.losses.push_back(static_cast<float>(total));
    if (step == 0) result.gradients = testing::gradient_values(*net);
    optim::clip_grad_norm(net->parameters(), 0.5);
    optimizer.step();
    optimizer.zero_grad();
  }
  result.final = testing::parameter_values(*net);
  return result;
}

Options with(Zero zero) { return {.zero = zero}; }

std::vector<Setting> settings() {
  const auto fixed = [](const Options& o) { return [o](const DeviceMesh&) { return o; }; };
  const std::vector<MeshDim> two{{"dp", 2}};
  const std::vector<MeshDim> three{{"dp", 3}};
  const std::vector<MeshDim> grid{{"rep", 2}, {"dp", 2}};
  const std::vector<std::string> dp{"dp"};
  const std::vector<std::string> both{"rep", "dp"};
  const Options half{.param_dtype = DType::kBFloat16,
                     .reduce_dtype = DType::kFloat32,
                     .output_dtype = DType::kFloat32};
  return {
      {.name = "one rank", .mesh = {{"dp", 1}}, .over = dp, .dims = dp},
      {.name = "2 ranks", .mesh = two, .over = dp, .dims = dp},
      {.name = "3 ranks, each step 3 microbatches, deferred",
       .mesh = three,
       .over = dp,
       .dims = dp,
       .microbatches = 3,
       .defer = true},
      {.name = "4 ranks, each step 3 microbatches, each reduced",
       .mesh = {{"dp", 4}},
       .over = dp,
       .dims = dp,
       .microbatches = 3},
      {.name = "replicas x shards", .mesh = grid, .over = both, .dims = dp},
      {.name = "mesh (4,1)", .mesh = {{"rep", 4}, {"dp", 1}}, .over = both, .dims = dp},
      {.name = "mesh (1,4)", .mesh = {{"rep", 1}, {"dp", 4}}, .over = both, .dims = dp},
      {.name = "ZeRO-2",
       .mesh = three,
       .over = dp,
       .dims = dp,
       .options = fixed(with(Zero::kGradients))},
      {.name = "ZeRO-1, 3 microbatches, deferred",
       .mesh = two,
       .over = dp,
       .dims = dp,
       .options = fixed(with(Zero::kState)),
       .microbatches = 3,
       .defer = true},
      {.name = "ZeRO-1 on replicas x shards",
       .mesh = grid,
       .over = both,
       .dims = dp,
       .options = fixed(with(Zero::kState))},
      {.name = "DDP",
       .mesh = three,
       .over = dp,
       .dims = dp,
       .options = fixed(with(Zero::kNothing))},
      {.name = "shards over all, kept over dp after forward",
       .mesh = grid,
       .over = both,
       .dims = both,
       .options = [](const DeviceMesh& mesh) { return Options{.reshard_over = mesh["dp"]}; }},
      {.name = "kept after forward",
       .mesh = two,
       .over = dp,
       .dims = dp,
       .options = fixed({.reshard_after_forward = false})},
      {.name = "last dim cut",
       .mesh = three,
       .over = dp,
       .dims = dp,
       .options = fixed({.shard_dim = [](const nn::Parameter&) { return -1; }})},
      {.name = "bf16, gradients and output f32",
       .mesh = two,
       .over = dp,
       .dims = dp,
       .options = fixed(half),
       .half = true,
       .tolerance = 0.02},
      {.name = "tensor parallel",
       .mesh = {{"dp", 2}, {"tp", 2}},
       .over = dp,
       .dims = dp,
       .tp = true},
      {.name = "computed again inside the groups",
       .mesh = two,
       .over = dp,
       .dims = dp,
       .recompute = Recompute::kInside},
      {.name = "computed again around the groups",
       .mesh = two,
       .over = dp,
       .dims = dp,
       .recompute = Recompute::kAround},
      {.name = "prefetch by name", .mesh = two, .over = dp, .dims = dp, .prefetch = true},
      {.name = "without overlap",
       .mesh = two,
       .over = dp,
       .dims = dp,
       .options = fixed({.overlap = Overlap::kNone})},
      {.name = "shards in a file",
       .mesh = two,
       .over = dp,
       .dims = dp,
       .options =
           [](const DeviceMesh&) {
             return Options{.offload = std::make_shared<FileAllocator>(::testing::TempDir())};
           }},
      {.name = "deferred init", .mesh = three, .over = dp, .dims = dp, .deferred = true},
      {.name = "frozen and trainable, late messages",
       .mesh = two,
       .over = dp,
       .dims = dp,
       .frozen = true,
       .delay = std::chrono::microseconds(300)},
      {.name = "all messages late, replicas x shards, computed again inside",
       .mesh = grid,
       .over = both,
       .dims = dp,
       .microbatches = 3,
       .defer = true,
       .recompute = Recompute::kInside,
       .delay = std::chrono::microseconds(300)},
  };
}

comm::local::WorldOptions world_of(const Setting& s) {
  if (s.delay.count() == 0) return {};
  return {.wrap = [most = s.delay](auto inner) {
    return std::make_shared<testing::DelayedTransport>(std::move(inner), /*seed=*/7, most);
  }};
}

std::string text_of(const std::vector<MeshDim>& mesh) { return to_string(MeshLayout(mesh)); }

TEST(Settings, AllTrainAsOneProcess) {
  const std::vector<Setting> all = settings();
  ASSERT_LE(all.size(), 24U);
  const Result plain = train({}, {.name = "one process"});
  const Result frozen = train({}, {.name = "one process", .frozen = true});
  // bf16 has 8 bits: roundings that fall the other way change losses near 4 by some 2^-6.
  const Result half = train({}, {.name = "one process", .half = true});
  EXPECT_GT(worst(half.losses, plain.losses), 1e-4);  // it was in bf16
  std::printf("%-68s %-12s %10s\n", "setting", "mesh", "difference");
  for (const Setting& s : all) {
    const Result& want = s.frozen ? frozen : s.half ? half : plain;
    double most = 0.0;
    run_ranks(
        MeshLayout(s.mesh).size(),
        [&](comm::Comm& world) {
          const DeviceMesh mesh(world, s.mesh);
          const Result got = train(mesh, s);
          // Sums of some 30 products near 1 in another order: 1e-6 in gradients near 1. Adam
          // divides by sqrt(v): of gradients near 1e-3 that is 1e-5 of a step of 0.01.
          EXPECT_LT(worst(got.losses, want.losses), s.tolerance) << s.name;
          EXPECT_LT(worst(got.gradients, want.gradients), s.tolerance) << s.name;
          EXPECT_LT(worst(got.final, want.final), 10 * s.tolerance) << s.name;
          if (world.rank() == 0) most = worst(got.gradients, want.gradients);
        },
        world_of(s));
    std::printf("%-68s %-12s %10.2g\n", s.name.c_str(), text_of(s.mesh).c_str(), most);
  }
}

// One rank sums in the order of one process.
TEST(Settings, OneRankAndAWholeBatchGiveTheBitsOfOneProcess) {
  const Result want = train({}, {.name = "one process"});
  for (const int ranks : {1, 2, 3}) {
    run_ranks(ranks, [&](comm::Comm& world) {
      const DeviceMesh mesh(world, {{"dp", ranks}});
      const Result got = train(mesh, {.name = "whole batch", .over = {}, .dims = {"dp"}});
      EXPECT_EQ(got.gradients, want.gradients);
      EXPECT_EQ(got.losses, want.losses);
    });
  }
}

// A cut parameter is summed once, whatever is kept between uses.
TEST(Settings, KeptParametersAreGatheredOncePerStep) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    const auto gathers = [&](Zero zero) {
      Setting s{.name = "", .over = {"dp"}, .dims = {"dp"}};
      s.options = [zero](const DeviceMesh&) { return with(zero); };
      const std::unique_ptr<Net> net = make_net(mesh, s);
      optim::AdamW optimizer(net->parameters(), {.lr = 0.01});
      std::vector<int> calls;
      for (int step = 0; step < 2; ++step) {
        testing::ledger().clear();
        for (int k = 0; k < 3; ++k) {
          DTensor loss = sum((*net)(rows(random({kRows, kWidth}, 1), mesh, {"dp"})));
          loss.backward({.defer = k < 2});
        }
        calls.push_back(testing::calls(StepKind::kAllGather, "fsdp"));
        optimizer.step();
        optimizer.zero_grad();
      }
      EXPECT_EQ(calls[0], calls[1]);
      return calls[1];
    };
    EXPECT_EQ(gathers(Zero::kParameters), 3 * (2 * 4 + 1));
    EXPECT_EQ(gathers(Zero::kGradients), 3 * (4 + 1));
    EXPECT_EQ(gathers(Zero::kState), 4 + 1);
    EXPECT_EQ(gathers(Zero::kNothing), 0);
  });
}

// Backward gathers over the smaller mesh only.
TEST(Settings, WhatIsKeptOverASmallerMeshIsGatheredThere) {
  run_ranks(4, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"node", 2}, {"dp", 2}});
    Setting s{.name = "", .over = {"node", "dp"}, .dims = {"node", "dp"}};
    s.options = [](const DeviceMesh& m) { return Options{.reshard_over = m["dp"]}; };
    const std::unique_ptr<Net> net = make_net(mesh, s);
    DTensor loss = sum((*net)(rows(random({kRows, kWidth}, 1), mesh, {"node", "dp"})));
    testing::ledger().clear();
    loss.backward();
    int gathers = 0;
    for (const LedgerEntry& e : testing::ledger().entries()) {
      if (e.kind != StepKind::kAllGather || e.op != "fsdp") continue;
      ++gathers;
      EXPECT_EQ(e.mesh_dims, std::vector<int>{1}) << e.label;
    }
    EXPECT_GT(gathers, 0);
  });
}

// The root's reshard_over is for groups over its dims: another is cut over all of its own.
TEST(Settings, TheRootsSmallerMeshIsNotForGroupsOverOtherDims) {
  run_ranks(4, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"node", 2}, {"dp", 2}});
    const auto net = std::make_unique<Net>(Recompute::kNone);
    nn::init_normal(*net, 1, 0.5);
    for (auto& block : net->blocks) fully_shard(*block, mesh["dp"]);
    fully_shard(*net, mesh.slice({"node", "dp"}), {.reshard_over = mesh["node"]});
    DTensor loss = sum((*net)(rows(random({kRows, kWidth}, 1), mesh, {"node", "dp"})));
    testing::ledger().clear();
    loss.backward();
    EXPECT_EQ(testing::calls(StepKind::kAllGather, "fsdp"), 4);  // each block once more
  });
}

TEST(Settings, AreChecked) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"rep", 1}, {"dp", 2}});
    testing::Mlp net({});
    EXPECT_THROW(
        fully_shard(net, mesh["dp"], {.reshard_after_forward = true, .zero = Zero::kGradients}),
        ArgumentError);
    EXPECT_THROW(fully_shard(net, mesh["dp"], {.reshard_over = mesh["rep"]}), ArgumentError);
    EXPECT_THROW(
        fully_shard(net, mesh["dp"], {.shard_dim = [](const nn::Parameter&) { return 1; }}),
        ArgumentError);  // a bias has one dim
    EXPECT_THROW(fully_shard(net, mesh["dp"], {.output_dtype = DType::kInt64}), ArgumentError);
    EXPECT_TRUE(net.up.weight.value().mesh().defined());
    EXPECT_TRUE(net.up.weight.value().spec().is_replicated());  // nothing was cut
  });
}

}  // namespace
}  // namespace dtensor::fsdp
