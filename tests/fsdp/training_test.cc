// Training under fully_shard, tensor parallelism and replication is training on one device.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "dtensor/fsdp/fully_shard.h"
#include "dtensor/nn/mixed_precision.h"
#include "dtensor/nn/to_dtype.h"
#include "dtensor/optim/adamw.h"
#include "dtensor/optim/clip_grad_norm.h"
#include "dtensor/tests/support/models.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/support/values.h"
#include "dtensor/tp/parallelize_module.h"

namespace dtensor::fsdp {
namespace {

using testing::random;
using testing::rows;
using testing::run_ranks;
using testing::Stack;
using testing::values;
using testing::worst;

constexpr int kSteps = 5;
constexpr int64_t kRows = 7;  // does not divide by 2, 3 or 4

struct Result {
  std::vector<float> losses;
  std::vector<float> norms;
  testing::Values first_gradients;
  testing::Values final;
};

using Wrap = std::function<void(Stack&, const DeviceMesh&)>;

Result train(const DeviceMesh& mesh, const Wrap& wrap, const std::vector<std::string>& over) {
  Stack net({.width = 3, .hidden = 5, .out = 2, .blocks = 3});
  nn::init_normal(net, 42, 0.5);
  wrap(net, mesh);
  optim::AdamW optimizer(net.parameters(), {.lr = 0.01});
  Result result;
  for (uint64_t step = 0; step < kSteps; ++step) {
    const DTensor x = rows(random({kRows, 3}, 2 * step), mesh, over);
    const DTensor t = rows(random({kRows, 2}, 2 * step + 1), mesh, over);
    DTensor loss = testing::mean_square(cast(net(x), DType::kFloat32), t);
    loss.backward();
    result.losses.push_back(static_cast<float>(loss.item()));
    if (step == 0) result.first_gradients = testing::gradient_values(net);
    result.norms.push_back(static_cast<float>(optim::clip_grad_norm(net.parameters(), 0.5)));
    optimizer.step();
    optimizer.zero_grad();
  }
  result.final = testing::parameter_values(net);
  return result;
}

void nothing(Stack&, const DeviceMesh&) {}

const Result& single() {
  static const Result result = train({}, nothing, {});
  return result;
}

// Sums of at most 7 * 5 products near 1 in another order: some 1e-6 in gradients of size 1; Adam
// divides by sqrt(v), which for gradients of 1e-3 makes that some 1e-5 of a step of 0.01.
void expect_same(const Result& got, const Result& want, double tolerance, const std::string& what) {
  EXPECT_LT(worst(got.losses, want.losses), tolerance) << what;
  EXPECT_LT(worst(got.norms, want.norms), tolerance) << what;
  EXPECT_LT(worst(got.first_gradients, want.first_gradients), tolerance) << what;
  EXPECT_LT(worst(got.final, want.final), 10 * tolerance) << what;
}

void shard_over(Stack& net, const MeshSlice& dims, const Options& options = {}) {
  for (auto& block : net.blocks) fully_shard(*block, dims);
  fully_shard(net, dims, options);
}

void replicated(Stack& net, const DeviceMesh& mesh) { nn::replicate(net, mesh); }
void sharded(Stack& net, const DeviceMesh& mesh) { shard_over(net, mesh["dp"]); }
void tensor_parallel(Stack& net, const DeviceMesh& mesh) {
  tp::parallelize_module(net, mesh["tp"],
                         {{"blocks.*.up", tp::Colwise{}}, {"blocks.*.down", tp::Rowwise{}}});
}
void both(Stack& net, const DeviceMesh& mesh) {
  tensor_parallel(net, mesh);
  shard_over(net, mesh["dp"]);
}

struct Case {
  std::string name;
  std::vector<MeshDim> mesh;
  Wrap wrap;
  std::vector<std::string> over;
};

using Doubles = std::vector<std::vector<double>>;

// Multiples of 1/8 from -1/2 to 1/2.
Tensor eighths(const Shape& shape, int64_t seed) {
  Tensor t = Tensor::empty(shape, DType::kFloat64);
  for (int64_t i = 0; i < t.numel(); ++i) {
    t.data<double>()[i] = static_cast<double>((i * 7 + seed) % 9 - 4) / 8;
  }
  return t;
}

// Gradients and updated parameters after each of `steps`, in f64.
Doubles in_float64(const DeviceMesh& mesh, const Wrap& wrap, const std::vector<std::string>& over,
                   int steps) {
  Stack net({.width = 3, .hidden = 5, .out = 2, .blocks = 2});
  nn::to_dtype(net, DType::kFloat64);
  int64_t seed = 0;
  for (const nn::Parameter& p : net.parameters()) {
    p.value().replace(DTensor(eighths(p.value().shape(), seed++)));
  }
  wrap(net, mesh);
  optim::AdamW optimizer(net.parameters(), {.lr = 0.01});
  Doubles result;
  for (int step = 0; step < steps; ++step) {
    const DTensor x = rows(eighths({8, 3}, step), mesh, over);
    DTensor loss = testing::mean_square(net(x), rows(eighths({8, 2}, 2 + step), mesh, over));
    loss.backward();
    for (const nn::Parameter& p : net.parameters()) {
      result.push_back(full(p.value().grad()).to_vector<double>());
    }
    optimizer.step();
    optimizer.zero_grad();
    for (const nn::Parameter& p : net.parameters()) {
      result.push_back(full(p.value()).to_vector<double>());
    }
  }
  return result;
}

void check(const Case& c) {
  int ranks = 1;
  for (const MeshDim& dim : c.mesh) ranks *= dim.size;
  const Result& want = single();
  run_ranks(ranks, [&](comm::Comm& world) {
    const DeviceMesh mesh(world, c.mesh);
    expect_same(train(mesh, c.wrap, c.over), want, 2e-5, c.name);
    EXPECT_EQ(stats().live_groups, 0);
  });
}

TEST(Training, IsTheSameUnderFullyShardOnOneToFourRanks) {
  for (int n = 1; n <= 4; ++n) check({"fsdp " + std::to_string(n), {{"dp", n}}, sharded, {"dp"}});
}

// A rank that has the whole batch sums in the order of one process.
TEST(Training, InFloat64OfAWholeBatchIsBitForBitThatOfOneProcess) {
  const Doubles want = in_float64({}, nothing, {}, kSteps);
  for (const int n : {1, 2, 3, 4}) {
    run_ranks(n, [&](comm::Comm& world) {
      EXPECT_EQ(in_float64(DeviceMesh(world, {{"dp", n}}), sharded, {}, kSteps), want) << n;
    });
  }
}

// Sums of multiples of 2^-40 at most, below 2^10: exact in any order. After the first step they are
// not any more.
TEST(Training, InFloat64IsBitForBitThatOfOneProcessWhereSumsAreExact) {
  const Doubles want = in_float64({}, nothing, {}, 1);
  const std::vector<Case> cases{
      {"dp", {{"dp", 2}}, sharded, {"dp"}},
      {"dp, uneven", {{"dp", 3}}, sharded, {"dp"}},
      {"dp, empty shards", {{"dp", 7}}, sharded, {"dp"}},
      {"replicas x shards", {{"rep", 2}, {"dp", 2}}, sharded, {"rep", "dp"}},
      {"dp x tp", {{"dp", 2}, {"tp", 2}}, both, {"dp"}},
  };
  for (const Case& c : cases) {
    run_ranks(MeshLayout(c.mesh).size(), [&](comm::Comm& world) {
      EXPECT_EQ(in_float64(DeviceMesh(world, c.mesh), c.wrap, c.over, 1), want) << c.name;
    });
  }
}

TEST(Training, IsTheSameReplicated) {
  for (int n = 1; n <= 4; n += 3) check({"ddp", {{"dp", n}}, replicated, {"dp"}});
}

TEST(Training, IsTheSameUnderTensorParallelism) {
  for (int n = 2; n <= 3; ++n) check({"tp", {{"tp", n}}, tensor_parallel, {}});
}

TEST(Training, IsTheSameUnderBothAtOnce) {
  check({"fsdp over tp", {{"dp", 2}, {"tp", 2}}, both, {"dp"}});
  check({"tp first", {{"tp", 2}, {"dp", 2}}, both, {"dp"}});
  check({"fsdp over tp, uneven", {{"dp", 3}, {"tp", 2}}, both, {"dp"}});
  check({"ddp and tp", {{"dp", 2}, {"tp", 2}}, tensor_parallel, {"dp"}});
  check({"one rank", {{"dp", 1}, {"tp", 1}}, both, {"dp"}});
}

TEST(Training, IsTheSameOnAMeshOfReplicasAndShards) {
  for (const auto& [replicas, shards] : std::vector<std::pair<int, int>>{{2, 2}, {4, 1}, {1, 4}}) {
    check({"hsdp", {{"rep", replicas}, {"dp", shards}}, sharded, {"rep", "dp"}});
  }
}

TEST(Training, IsTheSameShardedOverTwoMeshDims) {
  const Wrap wrap = [](Stack& net, const DeviceMesh& mesh) {
    shard_over(net, mesh.slice({"dp", "cp"}));
  };
  check({"two dims", {{"dp", 2}, {"cp", 2}}, wrap, {"dp", "cp"}});
}

TEST(Training, IsTheSameWithoutFreeingAfterForwardAndWithTheRootAlone) {
  const Wrap kept = [](Stack& net, const DeviceMesh& mesh) {
    shard_over(net, mesh["dp"], {.reshard_after_forward = false});
  };
  const Wrap freed = [](Stack& net, const DeviceMesh& mesh) {
    shard_over(net, mesh["dp"], {.reshard_after_forward = true});
  };
  const Wrap alone = [](Stack& net, const DeviceMesh& mesh) { fully_shard(net, mesh["dp"]); };
  check({"kept", {{"dp", 2}}, kept, {"dp"}});
  check({"freed", {{"dp", 2}}, freed, {"dp"}});
  check({"alone", {{"dp", 3}}, alone, {"dp"}});
}

// The batch is whole on every rank: gradients are R, and nothing is summed.
TEST(Training, IsTheSameOnAWholeBatch) {
  check({"whole batch", {{"dp", 2}}, sharded, {}});
  check({"whole batch", {{"dp", 2}}, replicated, {}});
}

// It runs the same program on handles without a part.
TEST(Training, ARankOutsideTheMeshHoldsHandles) {
  run_ranks(3, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}}, {2, 0});
    Stack net({.width = 3, .hidden = 5, .out = 2, .blocks = 2});
    nn::init_normal(net, 42, 0.5);
    sharded(net, mesh);
    optim::AdamW optimizer(net.parameters(), {.lr = 0.01});
    const DTensor x = rows(random({kRows, 3}, 1), mesh, {"dp"});
    const DTensor t = rows(random({kRows, 2}, 2), mesh, {"dp"});
    DTensor loss = testing::mean_square(net(x), t);
    loss.backward();
    EXPECT_EQ(optim::clip_grad_norm(net.parameters(), 0.5) > 0.0, world.rank() != 1);
    optimizer.step();
    EXPECT_EQ(net.head.weight.value().has_local(), world.rank() != 1);
    EXPECT_EQ(net.head.weight.value().grad().has_local(), world.rank() != 1);
    EXPECT_EQ(net.head.weight.value().shape(), (Shape{2, 3}));
  });
}

// bf16 forward and backward, f32 gradients on the wire and in the optimizer. bf16 has 8 bits, so
// losses near 1 agree with float32 to some 2^-7; runs on different meshes differ only in sums
// of float32 and in roundings to bf16 that fall the other way: 2^-8.
TEST(Training, InBf16IsCloseInEveryMode) {
  const Options options{.param_dtype = DType::kBFloat16, .reduce_dtype = DType::kFloat32};
  const Wrap cast_only = [](Stack& net, const DeviceMesh& mesh) {
    if (mesh.defined()) nn::replicate(net, mesh);
    nn::mixed_precision(net, DType::kBFloat16);
  };
  const Wrap shard = [&](Stack& net, const DeviceMesh& mesh) {
    shard_over(net, mesh["dp"], options);
  };
  const Result one = train({}, cast_only, {});
  EXPECT_LT(worst(one.losses, single().losses), 0.02);
  EXPECT_GT(worst(one.losses, single().losses), 1e-5);  // it was in bf16
  run_ranks(2, [&](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    EXPECT_LT(worst(train(mesh, cast_only, {"dp"}).losses, one.losses), 4e-3);
    EXPECT_LT(worst(train(mesh, shard, {"dp"}).losses, one.losses), 4e-3);
    const DeviceMesh trivial(world, {{"dp", 1}}, {world.rank()});
    EXPECT_LT(worst(train(trivial, shard, {"dp"}).losses, one.losses), 4e-3);
  });
}

}  // namespace
}  // namespace dtensor::fsdp
