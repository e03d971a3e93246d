#include "dtensor/fsdp/fully_shard.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/comm/comm_error.h"
#include "dtensor/nn/mixed_precision.h"
#include "dtensor/optim/sgd.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tests/support/models.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/support/values.h"
#include "dtensor/tp/parallelize_module.h"

namespace dtensor::fsdp {
namespace {

using testing::ledger;
using testing::Mlp;
using testing::piece;
using testing::random;
using testing::rows;
using testing::run_ranks;
using testing::Stack;
using testing::values;

// y = x * w, element by element; `used` decides on each rank whether w takes part.
class Scale : public nn::Module {
 public:
  explicit Scale(int64_t n, DType dtype = DType::kFloat32) : weight(add_parameter("weight", {n})) {
    weight.value().replace(DTensor(Tensor::full({n}, 1.0, dtype)));
  }
  std::string_view kind() const override { return "Scale"; }
  nn::Parameter weight;
  bool used = true;

 protected:
  DTensor forward(const nn::Inputs& in) override { return used ? mul(in[0], weight.use()) : in[0]; }
};

// Scale after Scale.
class Chain : public nn::Module {
 public:
  Chain(int groups, int64_t n) {
    for (int i = 0; i < groups; ++i) {
      parts.push_back(std::make_unique<Scale>(n));
      add_child("parts." + std::to_string(i), *parts.back());
    }
  }
  std::string_view kind() const override { return "Chain"; }
  std::vector<std::unique_ptr<Scale>> parts;
  std::vector<size_t> order;  // empty: as they stand

 protected:
  DTensor forward(const nn::Inputs& in) override {
    DTensor x = in[0];
    if (order.empty()) {
      for (auto& part : parts) x = (*part)(x);
    }
    for (const size_t i : order) x = (*parts[i])(x);
    return x;
  }
};

void shard_all(Chain& net, const MeshSlice& dims, const Options& options = {}) {
  for (auto& part : net.parts) fully_shard(*part, dims);
  fully_shard(net, dims, options);
}

// [ranks, n] with row r of value f(r, i), one row per rank of the mesh, over all its dims.
DTensor row_per_rank(const DeviceMesh& mesh, int64_t n,
                     const std::function<double(int, int64_t)>& f) {
  Tensor x = Tensor::empty({mesh.size(), n});
  for (int r = 0; r < mesh.size(); ++r) {
    for (int64_t i = 0; i < n; ++i) x.data<float>()[r * n + i] = static_cast<float>(f(r, i));
  }
  std::vector<Placement> cut(static_cast<size_t>(mesh.ndim()), Shard(0));
  return distribute(x, mesh, cut);
}

TEST(FullyShard, CutsRowsAndKeepsTheParameterItself) {
  run_ranks(4, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 4}});
    Mlp net({.in = 3, .hidden = 5, .out = 2});
    const nn::Parameter before = net.up.weight;
    net.up.bias.value().set_requires_grad(false);
    fully_shard(net, mesh["dp"]);
    EXPECT_TRUE(before == net.named_parameters()[0].second);
    EXPECT_EQ(before.name(), "up.weight");
    EXPECT_EQ(before.value().shape(), (Shape{5, 3}));
    EXPECT_EQ(before.value().dtype(), DType::kFloat32);
    EXPECT_TRUE(before.value().requires_grad());
    EXPECT_FALSE(net.up.bias.value().requires_grad());
    const int64_t want[4] = {2, 1, 1, 1};  // 5 over 4
    const Tensor& local = before.value().local_tensor();
    EXPECT_EQ(local.size(0), want[world.rank()]);
    EXPECT_EQ(local.storage()->size_bytes(), local.size_bytes());  // the rest is free
  });
}

// pytorch#136228
TEST(FullyShard, IsUnevenOverUnevenTensorParallelism) {
  run_ranks(4, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}, {"tp", 2}});
    nn::Linear net(8, 17);
    const Tensor whole = random({17, 8}, 3);
    net.weight.value().replace(DTensor(whole));
    tp::parallelize_module(net, mesh["tp"], {{"", tp::Colwise{}}});
    fully_shard(net, mesh["dp"]);
    const DTensor& w = net.weight.value();
    const int64_t begin[2][2] = {{0, 9}, {5, 13}};  // [dp][tp]
    const int64_t end[2][2] = {{5, 13}, {9, 17}};
    const Range mine = w.layout().range(0, *mesh.coordinate());
    const int dp = mesh.coordinate("dp");
    const int tp = mesh.coordinate("tp");
    EXPECT_EQ(mine, (Range{begin[dp][tp], end[dp][tp]}));
    EXPECT_EQ(values(w), whole.to_vector<float>());
    const DTensor tp_shard = redistribute(w, mesh["dp"], {Replicate()});
    EXPECT_EQ(tp_shard.layout().range(0, *mesh.coordinate()),
              (tp == 0 ? Range{0, 9} : Range{9, 17}));
  });
}

// pytorch#154888, pytorch#155903, verl#7493: w = 1, loss = mean of w x, x = 1 and 3.
TEST(FullyShard, GivesTheOneProcessGradientOnAnyMeshOfReplicasAndShards) {
  for (const int replicas : {1, 2}) {
    run_ranks(2, [&](comm::Comm& world) {
      const DeviceMesh mesh(world, {{"rep", replicas}, {"shard", 2 / replicas}});
      Scale net(1);
      fully_shard(net, mesh["shard"]);
      DTensor loss = mean(net(row_per_rank(mesh, 1, [](int r, int64_t) { return 1 + 2 * r; })));
      loss.backward();
      EXPECT_EQ(values(net.weight.value().grad()), std::vector<float>{2});
    });
  }
  Scale alone(1);
  DTensor loss = mean(alone(DTensor(Tensor::of<float>({1, 3}, {2, 1}))));
  loss.backward();
  EXPECT_EQ(piece(alone.weight.value().grad()), std::vector<float>{2});
}

// Sample r of 8 has gradient r + 1.
TEST(FullyShard, GivesTheSameBitsOnEveryRankOfEveryMeshOfEight) {
  for (const int replicas : {1, 2, 4, 8}) {
    run_ranks(8, [&](comm::Comm& world) {
      const DeviceMesh mesh(world, {{"rep", replicas}, {"shard", 8 / replicas}});
      Scale net(3);
      fully_shard(net, mesh["shard"]);
      DTensor loss =
          mul(mean(net(row_per_rank(mesh, 3, [](int r, int64_t) { return r + 1; }))), 3.0);
      loss.backward();
      EXPECT_EQ(values(net.weight.value().grad()), (std::vector<float>{4.5, 4.5, 4.5}));
    });
  }
}

TEST(FullyShard, MovesAGroupInOneCallTwoGathersAndOneReduceScatterPerStep) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Stack net({.width = 4, .hidden = 6, .out = 2, .blocks = 3});  // 3 groups of 4, 1 of the root
    for (auto& block : net.blocks) fully_shard(*block, mesh["dp"]);
    fully_shard(net, mesh["dp"]);
    for (uint64_t step = 0; step < 3; ++step) {
      ledger().clear();
      DTensor loss = mean(net(rows(random({4, 4}, step), mesh, {"dp"})));
      loss.backward();
      EXPECT_EQ(testing::entries(StepKind::kAllGather, "fsdp"), 2 * 12 + 1);
      EXPECT_EQ(testing::calls(StepKind::kAllGather, "fsdp"), 2 * 3 + 1);
      EXPECT_EQ(testing::entries(StepKind::kReduceScatter, "fsdp"), 12 + 1);
      EXPECT_EQ(testing::calls(StepKind::kReduceScatter, "fsdp"), 3 + 1);
      EXPECT_EQ(ledger().entries().size(), 25U + 13U);  // and nothing else
      for (const LedgerEntry& e : ledger().entries()) EXPECT_FALSE(e.label.empty());
    }
  });
}

TEST(FullyShard, ATiedParameterIsGatheredOnce) {
  class Tied : public nn::Module {
   public:
    Tied() : embed(5, 3), head(3, 5) {
      head.tie_weight(embed.weight);
      add_child("embed", embed);
      add_child("head", head);
      nn::init_normal(*this, 1, 1.0);
    }
    std::string_view kind() const override { return "Tied"; }
    nn::Embedding embed;
    nn::Linear head;

   protected:
    DTensor forward(const nn::Inputs& in) override { return head(embed(in[0])); }
  };
  const Tensor ids = Tensor::of<int64_t>({4, 0, 3, 4}, {4});
  Tied single;
  DTensor loss0 = mean(single(DTensor(ids)));
  loss0.backward();
  run_ranks(2, [&](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Tied net;
    fully_shard(net, mesh["dp"]);
    ledger().clear();
    DTensor loss = mean(net(distribute(ids, mesh, {Shard(0)})));
    loss.backward();
    EXPECT_EQ(testing::entries(StepKind::kAllGather), 1);
    EXPECT_EQ(testing::entries(StepKind::kReduceScatter), 1);
    EXPECT_LT(testing::worst(values(net.embed.weight.value().grad()),
                             piece(single.embed.weight.value().grad())),
              1e-6);
    Tied split;  // the head uses what only the embedding gathers
    fully_shard(split.embed, mesh["dp"]);
    fully_shard(split, mesh["dp"]);
    EXPECT_THROW(split(distribute(ids, mesh, {Shard(0)})), PlacementError);
  });
}

TEST(FullyShard, AScalarParameterStaysWhole) {
  class Gain : public nn::Module {
   public:
    Gain() : gain(add_parameter("gain", {})), weight(add_parameter("weight", {3})) {
      nn::init_normal(*this, 1, 1.0);
    }
    std::string_view kind() const override { return "Gain"; }
    nn::Parameter gain, weight;

   protected:
    DTensor forward(const nn::Inputs& in) override {
      return mul(mul(in[0], weight.use()), gain.use());
    }
  };
  Gain single;
  const Tensor data = random({5, 3}, 1);
  DTensor loss0 = mean(single(DTensor(data)));
  loss0.backward();
  for (const auto dtype : {DType::kFloat32, DType::kBFloat16}) {
    run_ranks(2, [&](comm::Comm& world) {
      const DeviceMesh mesh(world, {{"dp", 2}});
      Gain net;
      fully_shard(net, mesh["dp"], {.param_dtype = dtype, .reduce_dtype = DType::kFloat32});
      EXPECT_TRUE(net.gain.value().spec().is_replicated());
      DTensor loss = mean(cast(net(rows(data, mesh, {"dp"})), DType::kFloat32));
      loss.backward();
      const double tolerance = dtype == DType::kFloat32 ? 1e-6 : 0.02;  // bf16: 8 bits
      EXPECT_LT(testing::worst(testing::gradient_values(net), testing::gradient_values(single)),
                tolerance);
      EXPECT_EQ(net.gain.value().grad().dtype(), DType::kFloat32);
    });
  }
}

TEST(FullyShard, TakesOptionsOfTheRootWhereAGroupNamesNone) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Chain net(2, 4);
    fully_shard(*net.parts[0], mesh["dp"]);
    fully_shard(*net.parts[1], mesh["dp"], {.param_dtype = DType::kFloat32});
    fully_shard(net, mesh["dp"],
                {.param_dtype = DType::kBFloat16, .reduce_dtype = DType::kFloat32});
    std::vector<DType> seen;
    for (auto& part : net.parts) {
      part->add_pre_hook([&seen, &p = *part](const nn::Inputs& in) {
        seen.push_back(p.weight.use().dtype());
        EXPECT_EQ(in[0].dtype(), seen.back());
        return in;
      });
    }
    ledger().clear();
    DTensor loss = mean(net(rows(random({4, 4}, 1), mesh, {"dp"})));
    loss.backward();
    EXPECT_EQ(seen, (std::vector<DType>{DType::kBFloat16, DType::kFloat32}));
    for (const LedgerEntry& e : ledger().entries()) {
      const bool half = e.kind == StepKind::kAllGather && e.label == "parts.0.weight";
      EXPECT_EQ(e.payload_bytes, 4 * (half ? 2 : 4)) << e.label;  // 2 elements each way
    }
    EXPECT_EQ(net.parts[0]->weight.value().grad().dtype(), DType::kFloat32);
  });
}

TEST(FullyShard, WithoutGradientsFreesAllAndGathersOnce) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Chain net(3, 4);
    shard_all(net, mesh["dp"]);
    const NoGrad no_grad;
    for (int step = 0; step < 3; ++step) {
      ledger().clear();
      EXPECT_EQ(values(net(rows(Tensor::full({2, 4}, 3.0), mesh, {"dp"}))),
                std::vector<float>(8, 3.0F));
      EXPECT_EQ(testing::entries(StepKind::kAllGather, "fsdp"), 3);
      EXPECT_EQ(stats().live_groups, 0);
    }
  });
}

TEST(FullyShard, FindsAParameterWrittenBetweenForwardAndBackward) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Chain net(2, 4);
    shard_all(net, mesh["dp"]);
    DTensor loss = mean(net(rows(random({2, 4}, 1), mesh, {"dp"})));
    const nn::Parameter& w = net.parts[0]->weight;
    w.value().set_grad(distribute(Tensor::full({4}, 1.0), mesh, {Shard(0)}));
    optim::SGD({w}, {.lr = 0.1}).step();
    EXPECT_THROW(loss.backward(), Error);
    EXPECT_EQ(stats().live_groups, 0);
  });
}

// What a rank met that ran two experts of equal shapes in `order`.
std::string mismatch_of(comm::Comm& world, const std::vector<size_t>& order) {
  const DeviceMesh mesh(world, {{"dp", 2}});
  Chain net(2, 4);
  shard_all(net, mesh["dp"]);
  net.order = order;
  try {
    DTensor loss = mean(net(rows(random({2, 4}, 1), mesh, {"dp"})));
    loss.item();
  } catch (const comm::CommError& e) {
    EXPECT_EQ(e.fields().kind, comm::CommErrorKind::kMismatch) << e.what();
    return e.what();
  }
  return "";
}

// pytorch#126616, pytorch#75373: shapes, dtypes and numbers of calls agree, the modules do not.
TEST(FullyShard, RanksThatRunGroupsInDifferentOrdersGetAMismatch) {
  run_ranks(2, [&](comm::Comm& world) {
    const bool first = world.rank() == 0;
    const std::string what =
        mismatch_of(world, first ? std::vector<size_t>{0, 1} : std::vector<size_t>{1, 0});
    EXPECT_NE(what.find("parts.0.weight"), std::string::npos) << what;
    EXPECT_NE(what.find("parts.1.weight"), std::string::npos) << what;
  });
}

TEST(FullyShard, ARankThatSkipsAGroupGetsAMismatch) {
  run_ranks(2, [&](comm::Comm& world) {
    const bool first = world.rank() == 0;
    const std::string what =
        mismatch_of(world, first ? std::vector<size_t>{0, 1} : std::vector<size_t>{0});
    EXPECT_NE(what.find("parts.1.weight"), std::string::npos) << what;
  });
}

TEST(FullyShard, SaysWhatItCannotDo) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Mlp net({});
    fully_shard(net, mesh["dp"]);
    EXPECT_THROW(fully_shard(net, mesh["dp"]), PlacementError);  // a second time
    const DeviceMesh other(world, {{"x", 2}});
    EXPECT_THROW(fully_shard(net.up, other["x"]), PlacementError);
    EXPECT_THROW(nn::mixed_precision(net, DType::kBFloat16), PlacementError);
    EXPECT_THROW(net.up(rows(random({2, 3}, 1), mesh, {"dp"})), PlacementError);
    Mlp cut({});
    tp::parallelize_module(cut, mesh["dp"], {{"up", tp::Colwise{}}});
    EXPECT_THROW(fully_shard(cut, mesh["dp"]), PlacementError);
    EXPECT_TRUE(cut.down.weight.value().spec().is_replicated());  // nothing was placed
    Mlp half({});
    nn::mixed_precision(half, DType::kBFloat16);
    EXPECT_THROW(fully_shard(half.up, mesh["dp"]), PlacementError);
    Mlp fresh({});
    EXPECT_THROW(fully_shard(fresh, mesh["dp"], {.param_dtype = DType::kInt32}), ArgumentError);
    EXPECT_THROW(fully_shard(fresh, MeshSlice{}), ArgumentError);
  });
}

}  // namespace
}  // namespace dtensor::fsdp
