#include "dtensor/ops/dispatch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Dispatch, RefusesOperandsOfTwoMeshesAndOfNone) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}, {"tp", 2}});
    const DeviceMesh other(comm, {{"dp", 2}, {"tp", 2}}, {3, 1, 0, 2});
    const DTensor x = distribute(counted({4}), mesh, {Shard(0)});
    EXPECT_THAT(placement_error([&] { add(x, distribute(counted({4}), other, {Shard(0)})); }),
                HasSubstr("b on another, dp=2,tp=2@3,1,0,2"));
    EXPECT_THAT(placement_error([&] { add(DTensor(counted({4})), x); }),
                HasSubstr("add: a [4] is on no mesh, b on dp=2,tp=2; use replicate(a, mesh)"));
    const DTensor same(distribute(counted({4}), DeviceMesh(comm, {{"dp", 2}, {"tp", 2}}), {}));
    EXPECT_THAT(whole(add(x, same)), ElementsAre(0, 2, 4, 6));
  });
}

// pytorch#124990, torchtitan#3781: with and without gradients the same placements and messages.
TEST(Dispatch, DoesTheSameWithAndWithoutGradients) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const auto forward = [&] {
      const DTensor x = distribute(counted({3, 4}), mesh, {Replicate()});
      const DTensor w = leaf(counted({5, 4}), mesh, {Shard(1)});
      return mean(redistribute(relu(redistribute(linear(x, w), {Shard(0)})), {Replicate()}));
    };
    auto& ledger = Context::current().slot<Ledger>();
    const DTensor y = forward();
    const std::string table = to_string(ledger);
    ledger.clear();
    const NoGrad no_grad;
    const DTensor z = forward();
    EXPECT_EQ(to_string(ledger), table);
    EXPECT_EQ(z.layout(), y.layout());
    EXPECT_EQ(whole(z), whole(y));
    EXPECT_FALSE(z.requires_grad());
  });
}

// pytorch#124990: what is missing is said first, with the placements, though shapes do not fit
// either.
TEST(Dispatch, SaysThatAnOpHasNoRule) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const ops::Kernel kernel = [](const ops::KernelInfo&, ops::Pieces in) {
      return ops::Tensors{in[0]};
    };
    const Rule none{.op = "mine", .letters = ""};
    const DTensor x = distribute(counted({3, 4}), mesh, {Shard(0)});
    const DTensor y = distribute(counted({7}), mesh, {Replicate()});
    EXPECT_THAT(placement_error([&] {
                  ops::run1({.rule = none, .kernel = kernel}, {x, y});
                }),
                HasSubstr("no rule for mine: a f32[3,4] is [tp:S(0)], b f32[7] is [tp:R]"));
    const DTensor alone(counted({2}));
    EXPECT_EQ(piece(ops::run1({.rule = none, .kernel = kernel}, {alone})), piece(alone));
  });
}

// The adjoint of a silent slice is an all-gather: it is entered, and says what it is.
TEST(Dispatch, EntersTheAdjointOfASilentMove) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const DTensor a = distribute(floats({1, 2, 3}, {3}), mesh, {Shard(0)});
    const DTensor b = leaf(floats({4, 5, 6}, {3}), mesh, {Replicate()});
    DTensor loss = sum(mul(a, b));
    EXPECT_EQ(moved_bytes(), 0);
    loss.backward();
    EXPECT_THAT(piece(b.grad()), ElementsAre(1, 2, 3));
    const auto& entries = Context::current().slot<Ledger>().entries();
    ASSERT_EQ(entries.size(), 1U);
    EXPECT_EQ(entries[0].kind, StepKind::kAllGather);
    EXPECT_EQ(entries[0].cause, Cause::kAdjoint);
    EXPECT_EQ(entries[0].of, "silent move");
    EXPECT_EQ(entries[0].payload_bytes, 3 * 4);
  });
}

// A Partial gradient passes through one linear input and is resolved before any other op.
TEST(Dispatch, ResolvesAPartialGradientOnceBeforeANonlinearOp) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const DTensor x = distribute(counted({4}), mesh, {Shard(0)});
    const DTensor w = leaf(floats({1, 2, 3, 4}, {4}), mesh, {Replicate()});
    const auto reductions = [&](const DTensor& used) {
      auto& ledger = Context::current().slot<Ledger>();
      DTensor loss = sum(mul(used, sum(x)));  // sum(x) is P(sum): so is the gradient of `used`
      ledger.clear();
      loss.backward();
      return ledger.entries().size();
    };
    EXPECT_EQ(reductions(mul(transpose(reshape(w, {2, 2})), 2.0)), 1U);
    EXPECT_EQ(reductions(relu(w)), 1U);
    EXPECT_EQ(Context::current().slot<Ledger>().entries()[0].of, "relu");
  });
}

TEST(Dispatch, OnARankOutsideTheMeshGivesAHandle) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}}, {0, 1});
    const DTensor x = distribute(counted({3, 4}), mesh, {Shard(0)});
    const DTensor y = cast(relu(reshape(add(x, 1.0), {12})), DType::kFloat64);
    EXPECT_EQ(y.has_local(), comm.rank() < 2);
    EXPECT_EQ(y.shape(), Shape{12});
    EXPECT_EQ(y.dtype(), DType::kFloat64);
    EXPECT_EQ(y.spec().placement(0), Shard(0));
  });
}

TEST(Dispatch, OnNoMeshChecksShapes) {
  const DTensor x(counted({2, 3}));
  EXPECT_THROW(add(x, DTensor(counted({2}))), ArgumentError);
  EXPECT_THROW(silu_mul(x, DTensor(counted({3, 2}))), ArgumentError);
  EXPECT_THROW(rms_norm(x, DTensor(counted({2})), 1e-5), ArgumentError);
  EXPECT_THROW(rope(x, x, x), ArgumentError);
}

TEST(Dispatch, SavesNoOutputThatKeepsItselfAlive) {
  std::weak_ptr<Storage> storage;
  {
    DTensor x(counted({2}));
    x.set_requires_grad(true);
    const DTensor y = exp(x);
    storage = y.local_tensor().storage();
  }
  EXPECT_TRUE(storage.expired());
}

}  // namespace
}  // namespace dtensor
