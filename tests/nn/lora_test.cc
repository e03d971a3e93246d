#include "dtensor/nn/lora.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/nn/layers.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tensor/kernels.h"
#include "dtensor/tests/support/models.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/support/values.h"

namespace dtensor::nn {
namespace {

using testing::piece;
using testing::random;
using testing::Stack;

Stack::Sizes sizes() { return {.width = 4, .hidden = 6, .out = 2, .blocks = 2}; }

TEST(Lora, ChangesNothingAtFirstAndFreezesTheBase) {
  Stack plain(sizes());
  Stack net(sizes());
  init_normal(plain, 1, 0.5);
  init_normal(net, 1, 0.5);
  EXPECT_EQ(add_lora(net, {.rank = 3}), 5);
  const DTensor x(random({3, 4}, 2));
  EXPECT_EQ(piece(net(x)), piece(plain(x)));
  DTensor loss = sum(net(x));
  loss.backward();
  std::vector<std::string> trained;
  for (const Parameter& p : trainable_parameters(net)) trained.push_back(p.name());
  EXPECT_EQ(trained.size(), 10U);
  for (const auto& [name, p] : net.named_parameters()) {
    const bool adapter = name.find(".lora_") != std::string::npos;
    EXPECT_EQ(p.value().requires_grad(), adapter) << name;
    EXPECT_EQ(p.value().grad().defined(), adapter) << name;
  }
}

// Also where the model gets its numbers afterwards.
TEST(Lora, ChangesNothingAfterAnInitOfTheWholeModel) {
  Stack plain(sizes());
  Stack net(sizes());
  add_lora(net, {.rank = 3});
  init_normal(plain, 1, 0.5);
  init_normal(net, 1, 0.5);
  EXPECT_EQ(piece(net.head.lora_b.value()), std::vector<float>(2 * 3, 0.0F));
  EXPECT_NE(piece(net.head.lora_a.value()), std::vector<float>(3 * 4, 0.0F));
  const DTensor x(random({3, 4}, 2));
  EXPECT_EQ(piece(net(x)), piece(plain(x)));
}

TEST(Lora, AddsScaleTimesBTimesA) {
  Linear net(2, 3);
  add_lora(net, {.rank = 1, .scale = 10.0});
  net.lora_a.value().replace(DTensor(Tensor::of<float>({1, 2}, {1, 2})));
  net.lora_b.value().replace(DTensor(Tensor::of<float>({1, 0, -1}, {3, 1})));
  // W is 0; A x = 3 + 8 = 11.
  EXPECT_EQ(piece(net(DTensor(Tensor::of<float>({3, 4}, {1, 2})))),
            (std::vector<float>{110, 0, -110}));
}

// W + scale B A of small numbers, exact in every dtype here; 3 columns of B A are [1 2] times 1, 0,
// -1.
TEST(Lora, MergesIntoPiecesOfAnyPlacementAndBack) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    for (const auto placement :
         {Placement(Replicate()), Placement(Shard(0)), Placement(Shard(1))}) {
      testing::run_ranks(4, [&](comm::Comm& world) {
        const DeviceMesh mesh(world, {{"x", 4}});  // 3 rows: 1, 1, 1, 0; 2 columns: 1, 0, 1, 0
        Linear net(2, 3);
        add_lora(net, {.rank = 1, .scale = 2.0});
        net.weight.value().replace(DTensor(Tensor::full({3, 2}, 8.0, dtype)));
        net.lora_a.value().replace(DTensor(Tensor::of<float>({1, 2}, {1, 2}).to(dtype)));
        net.lora_b.value().replace(DTensor(Tensor::of<float>({1, 0, -1}, {3, 1}).to(dtype)));
        replicate(net, mesh);
        for (const Parameter& p : {net.weight, net.lora_a, net.lora_b}) {
          p.place(p.value().layout().with(0, placement));
        }
        const auto version = [&] { return net.weight.value().local_tensor().storage()->version(); };
        const uint64_t before = version();
        EXPECT_EQ(merge_adapters(net), 1);
        EXPECT_EQ(testing::values(net.weight.value()), (std::vector<float>{10, 12, 8, 8, 6, 4}));
        EXPECT_EQ(net.weight.value().dtype(), dtype);
        EXPECT_GT(version(), before);  // also of an empty piece
        EXPECT_THROW(merge_adapters(net), ArgumentError);
        EXPECT_EQ(unmerge_adapters(net), 1);
        EXPECT_EQ(testing::values(net.weight.value()), std::vector<float>(6, 8));
        EXPECT_THROW(unmerge_adapters(net), ArgumentError);
      });
    }
  }
}

TEST(Lora, MergedComputesTheSameAndIsNotTrained) {
  Stack net(sizes());
  add_lora(net, {.rank = 3, .linears = {"up", "head"}});
  init_normal(net, 1, 0.5);
  for (const auto& [name, p] : net.named_parameters()) {
    if (name.ends_with("lora_b")) p.value().replace(DTensor(random(p.value().shape(), 5)));
  }
  const DTensor x(random({3, 4}, 2));
  const std::vector<float> want = piece(net(x));
  const testing::Values before = testing::parameter_values(net);
  EXPECT_EQ(merge_adapters(net), 3);
  EXPECT_THROW(net(x), ArgumentError);
  {
    const NoGrad no_grad;
    EXPECT_LT(testing::worst(piece(net(x)), want), 1e-5);  // sums of some 10 products near 1
  }
  EXPECT_EQ(unmerge_adapters(net), 3);
  EXPECT_EQ(testing::parameter_values(net), before);
  EXPECT_EQ(piece(net(x)), want);
  merge_adapters(net);
  kernels::fill(net.head.weight.value().local_tensor(), 1.0);
  EXPECT_THROW(unmerge_adapters(net), ArgumentError);
  Stack plain(sizes());
  EXPECT_THROW(merge_adapters(plain), ArgumentError);
}

// A head that is tied to an embedding, or to another Linear: what is merged would change both.
TEST(Lora, RefusesToMergeIntoATiedWeight) {
  struct Tied : Module {
    Tied() : table(5, 3), up(3, 3), head(3, 5) {
      head.tie_weight(table.weight);
      add_child("table", table);
      add_child("up", up);
      add_child("head", head);
    }
    std::string_view kind() const override { return "Tied"; }
    DTensor forward(const Inputs& inputs) override { return head(up(table(inputs[0]))); }
    Embedding table;
    Linear up;
    Linear head;
  };
  Tied net;
  add_lora(net, {.rank = 1});
  init_normal(net, 1, 0.5);
  const testing::Values before = testing::parameter_values(net);
  for (Module* m : {static_cast<Module*>(&net), static_cast<Module*>(&net.head)}) {
    try {
      merge_adapters(*m);
      ADD_FAILURE() << "merged";
    } catch (const ArgumentError& e) {
      EXPECT_NE(std::string(e.what()).find("\"table.weight\" and \"head.weight\""),
                std::string::npos)
          << e.what();
    }
    EXPECT_FALSE(net.up.is_merged());
  }
  EXPECT_EQ(testing::parameter_values(net), before);
  EXPECT_EQ(merge_adapters(net.up), 1);
}

// Stages of a pipeline lie on meshes of their own.
TEST(Lora, MergesOnTwoMeshes) {
  testing::run_ranks(3, [](comm::Comm& world) {
    const DeviceMesh first(world, {{"x", 2}}, {0, 1});
    const DeviceMesh second(world, {{"x", 1}}, {2});
    Stack net(sizes());
    add_lora(net, {.rank = 1, .scale = 2.0, .linears = {"up", "head"}});
    for (const auto& [name, p] : net.named_parameters()) {
      const double value = name.ends_with("lora_a") || name.ends_with("lora_b") ? 3.0 : 1.0;
      p.value().replace(DTensor(Tensor::full(p.value().shape(), value)));
    }
    Module& head = net.head;
    for (const auto& [name, m] : net.named_modules()) {
      if (m->named_modules().size() == 1) replicate(*m, m == &head ? second : first);
    }
    EXPECT_EQ(merge_adapters(net), 3);
    const DTensor& w = net.head.weight.value();
    EXPECT_EQ(w.has_local(), world.rank() == 2);
    if (w.has_local()) {
      EXPECT_EQ(piece(w), std::vector<float>(static_cast<size_t>(w.numel()), 19));
    }
    EXPECT_EQ(unmerge_adapters(net), 3);
  });
}

TEST(Lora, ChoosesByTheLastPartOfAName) {
  Stack net(sizes());
  EXPECT_EQ(add_lora(net, {.linears = {"up", "head"}}), 3);
  EXPECT_FALSE(net.blocks[0]->down.lora_a.defined());
  EXPECT_TRUE(net.blocks[1]->up.lora_a.defined());
  EXPECT_THROW(add_lora(net, {.linears = {"up"}}), ArgumentError);    // a second time
  EXPECT_THROW(add_lora(net, {.linears = {"gate"}}), ArgumentError);  // there is none
  EXPECT_THROW(add_lora(net.blocks[0]->down, {.rank = 0}), ArgumentError);
  Linear gathered(2, 3);
  gathered.weight.set_gathered_by("layer \"head\"");
  EXPECT_THROW(add_lora(gathered), PlacementError);
}

TEST(Lora, OfALinearOnAMeshLiesWhereItsWeightDoes) {
  Linear single(4, 7);
  add_lora(single, {.rank = 3, .seed = 4});
  testing::run_ranks(2, [&](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"x", 2}});
    for (const auto placement :
         {Placement(Replicate()), Placement(Shard(0)), Placement(Shard(1))}) {
      Linear net(4, 7, {.out_unit = 3, .in_unit = 3});
      replicate(net, mesh);
      const Layout cut =
          net.weight.value().layout().with(0, placement, placement.is_shard() ? 3 : 0);
      net.weight.place(cut);
      add_lora(net, {.rank = 3, .seed = 4});
      const bool rows = placement == Placement(Shard(0));
      const bool columns = placement == Placement(Shard(1));
      const bool first = world.rank() == 0;
      EXPECT_EQ(net.lora_a.value().local_tensor().shape(),
                (columns ? (first ? Shape{3, 3} : Shape{3, 1}) : Shape{3, 4}));
      EXPECT_EQ(net.lora_b.value().local_tensor().shape(),
                (rows ? (first ? Shape{6, 3} : Shape{1, 3}) : Shape{7, 3}));
      EXPECT_EQ(testing::values(net.lora_a.value()), piece(single.lora_a.value()));
    }
  });
}

// The numbers of A are those of its name: the same in any model that has it.
TEST(Lora, StartsWithTheSameBitsWhereverItIsAdded) {
  Stack a(sizes());
  Stack b(sizes());
  add_lora(a, {.seed = 4});
  add_lora(b, {.linears = {"down"}, .seed = 4});
  EXPECT_EQ(piece(a.blocks[1]->down.lora_a.value()), piece(b.blocks[1]->down.lora_a.value()));
  EXPECT_NE(piece(a.blocks[1]->down.lora_a.value()), piece(a.blocks[0]->down.lora_a.value()));
}

}  // namespace
}  // namespace dtensor::nn
