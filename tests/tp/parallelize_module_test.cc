#include "dtensor/tp/parallelize_module.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/fsdp/fully_shard.h"
#include "dtensor/nn/layers.h"
#include "dtensor/nn/lora.h"
#include "dtensor/tests/support/models.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/support/values.h"

namespace dtensor::tp {
namespace {

using testing::ledger;
using testing::Mlp;
using testing::piece;
using testing::random;
using testing::run_ranks;
using testing::values;
using testing::worst;

const Plan kMlpPlan{{"up", Colwise{}}, {"down", Rowwise{}}};

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

void set(const nn::Parameter& p, const std::vector<float>& numbers) {
  const Tensor& local = p.value().local_tensor();
  ASSERT_EQ(local.numel(), static_cast<int64_t>(numbers.size()));
  std::copy(numbers.begin(), numbers.end(), local.data<float>());
}

// A Linear with bias whose product is linear, as the public reports have it.
class TwoLinears : public nn::Module {
 public:
  TwoLinears() : up(2, 5), down(5, 2, {.bias = true}) {
    add_child("up", up);
    add_child("down", down);
    set(up.weight, {1, 0, 0, 1, 1, 1, 2, 1, 1, 2});
    set(down.weight, {1, 1, 1, 1, 1, 1, -1, 1, -1, 1});
    set(down.bias, {100, 200});
  }
  std::string_view kind() const override { return "TwoLinears"; }
  nn::Linear up;
  nn::Linear down;

 protected:
  DTensor forward(const nn::Inputs& inputs) override { return down(up(inputs[0])); }
};

// pytorch#150336, torchtitan#2106: a hidden size that does not divide, the bias added once.
TEST(ParallelizeModule, ColumnThenRowWithAHiddenSizeOfFiveOverTwo) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"tp", 2}});
    TwoLinears net;
    parallelize_module(net, mesh["tp"], kMlpPlan);
    DTensor x = replicate(DTensor(Tensor::of<float>({1, 2}, {1, 2})), mesh);
    x.set_requires_grad(true);
    const DTensor y = net(x);
    EXPECT_TRUE(y.spec().is_replicated());
    EXPECT_EQ(piece(y), (std::vector<float>{115, 203}));
    DTensor loss = sum(y);
    loss.backward();
    const bool first = world.rank() == 0;
    EXPECT_EQ(net.up.weight.value().local_tensor().shape(), (first ? Shape{3, 2} : Shape{2, 2}));
    EXPECT_EQ(piece(net.down.bias.value().grad()), (std::vector<float>{1, 1}));
    EXPECT_EQ(piece(x.grad()), (std::vector<float>{6, 6}));
    EXPECT_EQ(piece(net.down.weight.value().grad()),
              (first ? std::vector<float>{1, 2, 3, 1, 2, 3} : std::vector<float>{4, 5, 4, 5}));
  });
}

// Values and gradients are those of one device; forward and backward cost one all-reduce each.
TEST(ParallelizeModule, AnMlpIsTheSameOnOneToFourRanks) {
  const Mlp::Sizes sizes{.in = 3, .hidden = 7, .out = 2};
  const Tensor data = random({2, 4, 3}, 5);
  Mlp single(sizes);
  nn::init_normal(single, 3, 0.5);
  DTensor x0(data);
  x0.set_requires_grad(true);
  const DTensor y0 = single(x0);
  DTensor loss0 = sum(mul(y0, y0));
  loss0.backward();
  for (int n = 1; n <= 4; ++n) {
    run_ranks(n, [&](comm::Comm& world) {
      const DeviceMesh mesh(world, {{"tp", n}});
      Mlp net(sizes);
      nn::init_normal(net, 3, 0.5);
      parallelize_module(net, mesh["tp"], kMlpPlan);
      DTensor x = replicate(DTensor(data), mesh);
      x.set_requires_grad(true);
      ledger().clear();
      const DTensor y = net(x);
      EXPECT_EQ(testing::entries(StepKind::kAllReduce), n > 1 ? 1 : 0);
      EXPECT_LT(worst(piece(y), piece(y0)), 1e-5);
      DTensor loss = sum(mul(y, y));
      loss.backward();
      EXPECT_EQ(testing::entries(StepKind::kAllReduce), n > 1 ? 2 : 0);  // the gradient of x
      EXPECT_LT(worst(piece(x.grad()), piece(x0.grad())), 1e-4);
      EXPECT_LT(worst(testing::gradient_values(net), testing::gradient_values(single)), 1e-4);
      for (const auto& [name, p] : net.named_parameters()) {
        EXPECT_TRUE(p.value().grad().layout() == p.value().layout()) << name;
      }
    });
  }
}

enum class Adapters { kBefore, kAfter };

// What the adapters of an Mlp do is that of one device; they are cut with the weights, and what
// down's adds goes through the reduction that is there.
void expect_adapters_as_on_one_device(int n, Adapters when, int64_t rank) {
  const Mlp::Sizes sizes{.in = 3, .hidden = 7, .out = 2};
  const Tensor data = random({2, 4, 3}, 5);
  const auto run = [&](Mlp& net, DTensor x) {
    x.set_requires_grad(true);
    nn::init_normal(net, 3, 0.5);  // lora_b too, so that adapters have an effect
    const DTensor y = net(x);
    DTensor loss = sum(mul(y, y));
    loss.backward();
    testing::Values out = testing::gradient_values(net);
    out["y"] = values(y);
    out["x"] = values(x.grad());
    return out;
  };
  Mlp single(sizes);
  nn::add_lora(single, {.rank = rank});
  const testing::Values start = testing::parameter_values(single);
  const testing::Values want = run(single, DTensor(data));
  ASSERT_EQ(want.size(), 6U);
  run_ranks(n, [&](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"tp", n}});
    Mlp net(sizes);
    if (when == Adapters::kBefore) nn::add_lora(net, {.rank = rank});
    parallelize_module(net, mesh["tp"], kMlpPlan);
    if (when == Adapters::kAfter) nn::add_lora(net, {.rank = rank});
    EXPECT_EQ(testing::parameter_values(net), start);
    const auto at = [](const nn::Parameter& p) { return p.value().layout().placement(0); };
    EXPECT_EQ(at(net.up.lora_a), Placement(Replicate()));
    EXPECT_EQ(at(net.up.lora_b), Placement(Shard(0)));
    EXPECT_EQ(at(net.down.lora_a), Placement(Shard(1)));
    EXPECT_EQ(at(net.down.lora_b), Placement(Replicate()));
    EXPECT_EQ(net.up.lora_b.value().local_tensor().size(0),
              net.up.weight.value().local_tensor().size(0));
    const DTensor x = replicate(DTensor(data), mesh);
    EXPECT_LT(worst(run(net, x), want), 1e-4);
    ledger().clear();
    const DTensor y = net(x);
    EXPECT_EQ(testing::entries(StepKind::kAllReduce), n > 1 ? 1 : 0);
  });
}

TEST(ParallelizeModule, AdaptersAreCutWithTheirLinears) {
  for (const int n : {1, 2, 3}) {
    for (const Adapters when : {Adapters::kBefore, Adapters::kAfter}) {
      for (const int64_t rank : {1, 4}) expect_adapters_as_on_one_device(n, when, rank);
    }
  }
}

TEST(ParallelizeModule, CutsWholeUnits) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"tp", 2}});
    nn::Linear q(4, 12, {.bias = true, .out_unit = 4});
    parallelize_module(q, mesh["tp"], {{"", Colwise{}}});
    const int64_t rows = world.rank() == 0 ? 8 : 4;  // two heads of three, and one
    EXPECT_EQ(q.weight.value().local_tensor().size(0), rows);
    EXPECT_EQ(q.bias.value().local_tensor().size(0), rows);
    EXPECT_TRUE(q.weight.value().requires_grad());
  });
}

// The input of a Rowwise layer is cut by whole heads, its weight by single columns.
TEST(ParallelizeModule, AStyleDoesNotMoveACutToAnotherOne) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"tp", 2}});
    class Net : public nn::Module {
     public:
      explicit Net(int64_t in_unit)
          : up(2, 12, {.out_unit = 4}), down(12, 2, {.in_unit = in_unit}) {
        add_child("up", up);
        add_child("down", down);
      }
      std::string_view kind() const override { return "Net"; }
      nn::Linear up, down;

     protected:
      DTensor forward(const nn::Inputs& in) override { return down(up(in[0])); }
    };
    const DTensor x = replicate(DTensor(random({3, 2}, 1)), mesh);
    Net good(4);
    parallelize_module(good, mesh["tp"], kMlpPlan);
    EXPECT_NO_THROW(good(x));
    Net bad(1);  // 6 and 6 columns against 8 and 4
    parallelize_module(bad, mesh["tp"], kMlpPlan);
    const std::string message = message_of([&] { bad(x); });
    EXPECT_NE(message.find("units of 4"), std::string::npos) << message;
    EXPECT_NE(message.find("\"down\""), std::string::npos) << message;
    EXPECT_THROW(bad(x), PlacementError);
  });
}

// ids [b,t] -> embedding -> head, one parameter under two names.
class Tied : public nn::Module {
 public:
  Tied(int64_t vocabulary, int64_t width) : embed(vocabulary, width), head(width, vocabulary) {
    head.tie_weight(embed.weight);
    add_child("embed", embed);
    add_child("head", head);
  }
  std::string_view kind() const override { return "Tied"; }
  nn::Embedding embed;
  nn::Linear head;

 protected:
  DTensor forward(const nn::Inputs& in) override { return head(embed(in[0])); }
};

TEST(ParallelizeModule, ATiedEmbeddingAndHeadAgreeOnOneCut) {
  const Tensor ids = Tensor::of<int64_t>({4, 0, 5, 4, 2, 2}, {2, 3});
  Tied single(7, 3);
  nn::init_normal(single, 9, 1.0);
  DTensor loss0 = sum(mul(single(DTensor(ids)), single(DTensor(ids))));
  loss0.backward();
  run_ranks(3, [&](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"tp", 3}});
    Tied net(7, 3);
    nn::init_normal(net, 9, 1.0);
    parallelize_module(net, mesh["tp"], {{"embed", Rowwise{}}, {"head", Colwise{Replicate()}}});
    EXPECT_EQ(net.named_parameters().size(), 1U);
    EXPECT_EQ(net.head.weight.value().layout().placement(0), Shard(0));
    const DTensor on_mesh = replicate(DTensor(ids), mesh);
    DTensor loss = sum(mul(net(on_mesh), net(on_mesh)));
    loss.backward();
    EXPECT_LT(worst(testing::gradient_values(net), testing::gradient_values(single)), 1e-3);
    Tied other(7, 3);
    EXPECT_THROW(parallelize_module(other, mesh["tp"], {{"embed", Colwise{}}, {"head", Colwise{}}}),
                 PlacementError);
  });
}

TEST(ParallelizeModule, AnEmbeddingMayBeCutByColumns) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"tp", 2}});
    nn::Embedding embed(4, 3);
    nn::init_normal(embed, 2, 1.0);
    const std::vector<float> table = values(embed.weight.value());
    parallelize_module(embed, mesh["tp"], {{"", Colwise{}}});
    EXPECT_EQ(embed.weight.value().layout().placement(0), Shard(1));
    const DTensor y = embed(replicate(DTensor(Tensor::of<int64_t>({3, 1}, {2})), mesh));
    EXPECT_TRUE(y.spec().is_replicated());
    const std::vector<float> want{table[9], table[10], table[11], table[3], table[4], table[5]};
    EXPECT_EQ(piece(y), want);
    DTensor loss = sum(y);
    loss.backward();
    EXPECT_EQ(values(embed.weight.value().grad()),
              (std::vector<float>{0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1}));
  });
}

// norm on sequence shards, then a block between an all-gather and a reduce-scatter.
class NormMlp : public nn::Module {
 public:
  NormMlp() : norm(4, 1e-5), mlp({.in = 4, .hidden = 6, .out = 4, .bias = false}) {
    add_child("norm", norm);
    add_child("mlp", mlp);
    nn::init_normal(*this, 4, 0.5);
  }
  std::string_view kind() const override { return "NormMlp"; }
  nn::RMSNorm norm;
  Mlp mlp;

 protected:
  DTensor forward(const nn::Inputs& in) override { return add(in[0], mlp(norm(in[0]))); }
};

TEST(ParallelizeModule, SequenceParallelGathersAndReducesOncePerBlock) {
  const Tensor data = random({2, 5, 4}, 8);
  NormMlp single;
  DTensor loss0 = sum(mul(single(DTensor(data)), single(DTensor(data))));
  loss0.backward();
  run_ranks(2, [&](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"tp", 2}});
    NormMlp net;
    parallelize_module(net, mesh["tp"],
                       {{"mlp", PrepareInput{{Replicate()}}},
                        {"mlp.up", Colwise{}},
                        {"mlp.down", Rowwise{Shard(1)}}});
    const DTensor x = distribute(data, mesh, {Shard(1)});
    ledger().clear();
    const DTensor y = net(x);
    EXPECT_EQ(y.layout().placement(0), Shard(1));
    EXPECT_EQ(testing::entries(StepKind::kAllGather), 1);
    EXPECT_EQ(testing::entries(StepKind::kReduceScatter), 1);
    EXPECT_EQ(testing::entries(StepKind::kAllReduce), 0);
    DTensor loss = sum(mul(net(x), y));
    loss.backward();
    EXPECT_LT(worst(testing::gradient_values(net), testing::gradient_values(single)), 1e-3);
  });
}

// Tensor parallelism cuts between units of 12 rows, 3 and 2 of five; data parallelism then cuts
// what is left by single rows.
TEST(ParallelizeModule, FullyShardCutsWhatAStyleLeftByRows) {
  run_ranks(4, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}, {"tp", 2}});
    nn::Linear up(4, 60, {.out_unit = 12});
    nn::init_normal(up, 5, 1.0);
    const std::vector<float> whole = values(up.weight.value());
    parallelize_module(up, mesh["tp"], {{"", Colwise{}}});
    const bool first = (*mesh.coordinate())[1] == 0;
    EXPECT_EQ(up.weight.value().local_tensor().size(0), first ? 36 : 24);
    fsdp::fully_shard(up, mesh["dp"]);
    const int64_t mine = first ? 18 : 12;
    EXPECT_EQ(up.weight.value().local_tensor().size(0), mine);
    const int64_t begin = (first ? 0 : 36) + (*mesh.coordinate())[0] * mine;
    EXPECT_EQ(piece(up.weight.value()),
              std::vector<float>(whole.begin() + begin * 4, whole.begin() + (begin + mine) * 4));
  });
}

// x plus a table that is no parameter.
class WithTable : public nn::Module {
 public:
  WithTable() : up(3, 4), table(add_buffer("table", DTensor(Tensor::arange(4)))) {
    add_child("up", up);
  }
  std::string_view kind() const override { return "WithTable"; }
  nn::Linear up;
  DTensor& table;

 protected:
  DTensor forward(const nn::Inputs& in) override { return add(up(in[0]), table); }
};

TEST(ParallelizeModule, AndFullyShardReplicateBuffersOnTheRootMesh) {
  run_ranks(4, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}, {"tp", 2}});
    const DTensor x = replicate(DTensor(random({2, 3}, 1)), mesh);
    const auto check = [&](WithTable& net) {
      EXPECT_TRUE(net.table.mesh() == mesh);
      EXPECT_TRUE(net.table.spec().is_replicated());
      EXPECT_EQ(piece(net.table), (std::vector<float>{0, 1, 2, 3}));
      EXPECT_EQ(values(net(x)), values(add(net.up(x), net.table)));
    };
    WithTable cut;
    parallelize_module(cut, mesh["tp"], {{"up", Colwise{Replicate()}}});
    check(cut);
    WithTable sharded;
    fsdp::fully_shard(sharded.up, mesh["dp"]);
    EXPECT_FALSE(sharded.table.mesh().defined());  // of the parent
    fsdp::fully_shard(sharded, mesh["dp"]);
    check(sharded);
  });
}

TEST(ParallelizeModule, SaysWhatItCannotDoBeforeItPlacesAnything) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 1}, {"tp", 2}});
    Mlp net({});
    const auto apply = [&](const Plan& plan) { parallelize_module(net, mesh["tp"], plan); };
    EXPECT_THROW(apply({{"up", Colwise{}}, {"nowhere.*", Colwise{}}}), ArgumentError);
    EXPECT_THROW(apply({{"up", Colwise{}}, {"", Colwise{}}}), ArgumentError);  // an Mlp
    EXPECT_THROW(parallelize_module(net, mesh.all(), kMlpPlan), ArgumentError);
    EXPECT_FALSE(net.up.weight.value().mesh().defined());
    apply({{"up", Colwise{}}});
    EXPECT_TRUE(net.down.weight.value().spec().is_replicated());  // replicated, not cut
    EXPECT_TRUE(net.down.weight.value().mesh() == mesh);
    EXPECT_THROW(apply({{"up", Rowwise{}}}), PlacementError);  // cut otherwise
    Mlp sharded({});
    fsdp::fully_shard(sharded, mesh["dp"]);
    EXPECT_THROW(parallelize_module(sharded, mesh["tp"], kMlpPlan), PlacementError);
  });
}

}  // namespace
}  // namespace dtensor::tp
