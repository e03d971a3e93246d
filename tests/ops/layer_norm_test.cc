#include "dtensor/ops/layer_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::Each;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pointwise;
using ::testing::StartsWith;

const std::vector<float> kX = {1, 2, 4, 9, 0, -3, 5, 5, 2, 7};
const std::vector<float> kW = {1, 2, 0.5F, -1, 3};
const std::vector<float> kB = {0, 1, 2, 3, 4};

// By the formula, in double.
std::vector<float> expected(const std::vector<float>& x, size_t n) {
  std::vector<float> y;
  for (size_t row = 0; row < x.size() / n; ++row) {
    double mean = 0;
    double squares = 0;
    for (size_t i = 0; i < n; ++i) mean += x[row * n + i] / static_cast<double>(n);
    for (size_t i = 0; i < n; ++i) squares += std::pow(x[row * n + i] - mean, 2);
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
    for (size_t i = 0; i < n; ++i) {
      y.push_back(static_cast<float>((x[row * n + i] - mean) * inverse * kW[i] + kB[i]));
    }
  }
  return y;
}

auto near(const std::vector<float>& want) { return Pointwise(FloatNear(1e-5F), want); }

TEST(LayerNorm, OverACutDimIsAskedFor) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 4}});
    const DTensor x = leaf(floats(kX, {2, 5}), mesh, {Shard(1)});
    const DTensor w = leaf(floats(kW, {5}), mesh, {Shard(0)});
    const DTensor b = leaf(floats(kB, {5}), mesh, {Shard(0)});
    const std::string e = placement_error([&] { layer_norm(x, w, b); });
    EXPECT_THAT(e, HasSubstr("{.sharded_dims = true}"));
    EXPECT_EQ(moved_bytes(), 0);

    const DTensor y = layer_norm(x, w, b, {.sharded_dims = true});
    EXPECT_EQ(y.spec().placement(0), Shard(1));
    EXPECT_THAT(whole(y), near(expected(kX, 5)));
    auto& ledger = Context::current().slot<Ledger>();
    ledger.clear();
    sum(mul(y, y)).backward();
    ASSERT_EQ(ledger.entries().size(), 2U) << "two sums of every row";
    EXPECT_EQ(ledger.entries()[0].of, "layer_norm");
    EXPECT_EQ(ledger.entries()[0].cause, Cause::kAdjoint);

    DTensor x1(floats(kX, {2, 5}));
    DTensor w1(floats(kW, {5}));
    DTensor b1(floats(kB, {5}));
    for (DTensor* t : {&x1, &w1, &b1}) t->set_requires_grad(true);
    const DTensor y1 = layer_norm(x1, w1, b1);
    sum(mul(y1, y1)).backward();
    EXPECT_THAT(whole(x.grad()), Pointwise(FloatNear(1e-4F), piece(x1.grad())));
    EXPECT_THAT(whole(w.grad()), Pointwise(FloatNear(1e-4F), piece(w1.grad())));
    EXPECT_THAT(whole(b.grad()), Pointwise(FloatNear(1e-4F), piece(b1.grad())));
  });
}

TEST(LayerNorm, OfBatchShardsSendsNothingForward) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const DTensor x = distribute(floats(kX, {2, 5}), mesh, {Shard(0)});
    const DTensor w = leaf(floats(kW, {5}), mesh, {});
    const DTensor b = leaf(floats(kB, {5}), mesh, {});
    const DTensor y = layer_norm(x, w, b);
    EXPECT_EQ(y.spec().placement(0), Shard(0));
    EXPECT_EQ(moved_bytes(), 0);
    EXPECT_THAT(whole(y), near(expected(kX, 5)));
    sum(y).backward();
    EXPECT_THAT(whole(b.grad()), near({2, 2, 2, 2, 2}));
  });
}

TEST(LayerNorm, TakesWeightsInF32BesideNarrowRows) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const DTensor x(floats(kX, {2, 5}).to(dtype));
    const DTensor y = layer_norm(x, DTensor(floats(kW, {5})), DTensor(floats(kB, {5})));
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_THAT(y.local_tensor().to(DType::kFloat32).to_vector<float>(),
                Pointwise(FloatNear(0.04F), expected(kX, 5)));
  }
}

TEST(LayerNorm, GivesEachWeightAGradientOfItsOwnDtype) {
  const DTensor x(floats(kX, {2, 5}).to(DType::kBFloat16));
  DTensor w(floats(kW, {5}).to(DType::kBFloat16));
  DTensor b(floats(kB, {5}));
  for (DTensor* t : {&w, &b}) t->set_requires_grad(true);
  sum(layer_norm(x, w, b)).backward();
  EXPECT_EQ(w.grad().dtype(), DType::kBFloat16);
  EXPECT_EQ(b.grad().dtype(), DType::kFloat32);
  EXPECT_THAT(piece(b.grad()), near({2, 2, 2, 2, 2}));
}

// 41 times the float next to 1/41 is not 1.
TEST(LayerNorm, OfEqualNumbersInACutRowIsZero) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const DTensor x = distribute(Tensor::full({1, 41}, 1.0), mesh, {Shard(1)});
    EXPECT_THAT(whole(layer_norm(x, {.sharded_dims = true})), Each(0));
  });
}

TEST(LayerNorm, RefusesABiasAlone) {
  const DTensor x(floats(kX, {2, 5}));
  EXPECT_THROW(layer_norm(x, DTensor(), x), ArgumentError);
  EXPECT_THROW(layer_norm(x, DTensor(floats({1}, {1})), DTensor()), ArgumentError);
  EXPECT_THROW(layer_norm(DTensor(floats({1}, {}))), ArgumentError);
}

// Groups of two channels, each with what lies behind it: as rows of four.
TEST(GroupNorm, IsALayerNormOfEachGroup) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const Tensor x = counted({1, 4, 2});
    const DTensor w = distribute(floats({1, 2, 3, 4}, {4}), mesh, {});
    const DTensor b = distribute(floats({10, 20, 30, 40}, {4}), mesh, {});
    const DTensor y = group_norm(distribute(x, mesh, {Shard(1)}), w, b, {.groups = 2});
    EXPECT_EQ(y.spec().placement(0), Shard(1));
    EXPECT_EQ(moved_bytes(), 0);
    const auto u = [](double d) { return static_cast<float>(d / std::sqrt(1.25 + 1e-5)); };
    EXPECT_THAT(whole(y),
                near({u(-1.5) + 10, u(-0.5) + 10, 2 * u(0.5) + 20, 2 * u(1.5) + 20,
                      3 * u(-1.5) + 30, 3 * u(-0.5) + 30, 4 * u(0.5) + 40, 4 * u(1.5) + 40}));
  });
  EXPECT_THROW(group_norm(DTensor(counted({1, 4})), DTensor(), DTensor(), {.groups = 3}),
               ArgumentError);
}

// The message names the op that was called, and what it shows helps.
TEST(GroupNorm, RefusesWhatWouldCutAGroup) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const Tensor x = counted({3, 4, 2});
    const std::vector<float> want = whole(group_norm(DTensor(x), DTensor(), DTensor(), {}));
    for (const Placement p : {Placement(Shard(1)), Placement(Shard(2)), Placement(Partial())}) {
      const DTensor given = redistribute(distribute(x, mesh, {}), {p});
      const auto call = [&](const DTensor& t) {
        return group_norm(t, DTensor(), DTensor(), {.groups = 1});
      };
      const std::string message = placement_error([&] { call(given); });
      EXPECT_THAT(message, StartsWith("group_norm: x f32[3,4,2] is " + to_string(p)));
      EXPECT_THAT(message, HasSubstr("redistribute(x, {Replicate()})"));
      EXPECT_THAT(message, Not(HasSubstr("sharded_dims")));
      EXPECT_THAT(message, HasSubstr("redistribute(x, {Shard(0)})"));
      EXPECT_EQ(whole(call(redistribute(given, {Replicate()}))), want);
      EXPECT_EQ(whole(call(redistribute(given, {Shard(0)}))), want);
      const PolicyScope automatic(RedistributePolicy::kAuto);
      EXPECT_EQ(whole(call(given)), want);
    }
  });
}

}  // namespace
}  // namespace dtensor
