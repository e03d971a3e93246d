#include "dtensor/ops/index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "dtensor/ops/embedding.h"
#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// By plain loops over whole arrays: table [2,n,2] and an index of the same outer dims.
TEST(Gather, PicksAlongADim) {
  const DTensor a(counted({2, 3, 2}));
  const DTensor index(ids({2, 0, 1, 1, 0, 2, 0, 0}, {2, 2, 2}));
  const std::vector<int64_t> at = index.local_tensor().to_vector<int64_t>();
  std::vector<float> want;
  for (int64_t o = 0; o < 2; ++o) {
    for (int64_t w = 0; w < 2; ++w) {
      for (int64_t i = 0; i < 2; ++i) {
        const int64_t v = at[static_cast<size_t>((o * 2 + w) * 2 + i)];
        want.push_back(static_cast<float>((o * 3 + v) * 2 + i));
      }
    }
  }
  EXPECT_EQ(piece(gather(a, 1, index)), want);
  EXPECT_THROW(gather(a, 1, DTensor(ids({3, 0, 0, 0, 0, 0, 0, 0}, {2, 2, 2}))), ArgumentError);
  EXPECT_THROW(gather(a, 1, DTensor(ids({0}, {1, 1, 1}))), ArgumentError);
  EXPECT_THROW(gather(a, 1, DTensor(counted({2, 2, 2}))), ArgumentError);
}

TEST(IndexSelect, OfACutDimIsPartialAndItsGradientCut) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 3}});
    const DTensor a = leaf(counted({5, 2}), mesh, {Shard(0)});
    const DTensor index = replicate(DTensor(ids({4, 0, 4, 3}, {4})), mesh);
    const DTensor y = index_select(a, 0, index);
    EXPECT_EQ(y.spec().placement(0), Partial());
    EXPECT_THAT(whole(y), ElementsAre(8, 9, 0, 1, 8, 9, 6, 7));
    sum(y).backward();
    EXPECT_EQ(a.grad().spec().placement(0), Shard(0));
    EXPECT_THAT(whole(a.grad()), ElementsAre(1, 1, 0, 0, 0, 0, 1, 1, 2, 2));
  });
}

// What other ranks hold joins by a sum, whose identity is -0.0: a +0.0 would turn -0.0 into +0.0.
TEST(Index, KeepsAMinusZeroOfACutDim) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const DTensor a = distribute(floats({-0.0F, 1, 2, -0.0F}, {4, 1}), mesh, {Shard(0)});
    const DTensor rows = replicate(DTensor(ids({0, 3}, {2})), mesh);
    const DTensor cells = replicate(DTensor(ids({0, 3}, {2, 1})), mesh);
    for (const DTensor& y : {index_select(a, 0, rows), gather(a, 0, cells), embedding(a, rows)}) {
      for (const float v : whole(y)) EXPECT_TRUE(v == 0 && std::signbit(v));
    }
  });
}

TEST(IndexSelect, TakesEmptyStridedAndIntegerTensors) {
  const DTensor a(counted({3, 2}));
  EXPECT_EQ(index_select(a, 0, DTensor(ids({}, {0}))).shape(), (Shape{0, 2}));
  EXPECT_THAT(piece(index_select(transpose(a), 1, DTensor(ids({2, 0}, {2})))),
              ElementsAre(4, 0, 5, 1));
  const DTensor numbers(ids({7, 8, 9}, {3}));
  EXPECT_THAT(
      index_select(numbers, 0, DTensor(ids({2, 1}, {2}))).local_tensor().to_vector<int64_t>(),
      ElementsAre(9, 8));
}

// The index's dim cut: each rank adds what it has, and `a` counts once.
TEST(ScatterAdd, OverACutIndexCountsTheOperandOnce) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const DTensor a = leaf(floats({10, 20, 30}, {3}), mesh, {Replicate()});
    const DTensor index = distribute(ids({2, 0, 2, 2}, {4}), mesh, {Shard(0)});
    const DTensor source = leaf(floats({1, 2, 3, 4}, {4}), mesh, {Shard(0)});
    const DTensor y = scatter_add(a, 0, index, source);
    EXPECT_EQ(y.spec().placement(0), Partial());
    EXPECT_THAT(whole(y), ElementsAre(12, 20, 38));
    EXPECT_THAT(whole(index_add(a, 0, index, source)), ElementsAre(12, 20, 38));
    sum(mul(y, replicate(DTensor(floats({1, 2, 3}, {3})), mesh))).backward();
    EXPECT_THAT(whole(source.grad()), ElementsAre(3, 1, 3, 3));
    EXPECT_THAT(whole(a.grad()), ElementsAre(1, 2, 3));
  });
}

TEST(IndexAdd, WritesTheRowsThatARankHolds) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 3}});
    const DTensor a = distribute(Tensor::zeros({4, 1}), mesh, {Shard(0)});
    const DTensor index = replicate(DTensor(ids({3, 1, 3}, {3})), mesh);
    const DTensor source = replicate(DTensor(floats({1, 2, 4}, {3, 1})), mesh);
    const DTensor y = index_add(a, 0, index, source);
    EXPECT_EQ(y.spec().placement(0), Shard(0));
    EXPECT_THAT(whole(y), ElementsAre(0, 2, 0, 5));
  });
}

TEST(OneHot, IsOneWhereTheIndexStands) {
  const DTensor index(ids({2, 0}, {2}));
  EXPECT_THAT(piece(one_hot(index, 3)), ElementsAre(0, 0, 1, 1, 0, 0));
  EXPECT_EQ(one_hot(index, 3, DType::kInt64).dtype(), DType::kInt64);
  EXPECT_THROW(one_hot(index, 2), ArgumentError);
}

TEST(Scatter, WritesWhereTheIndexSays) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"d", 2}});
    for (const Placement p : {Shard(0), Replicate()}) {
      const DTensor a = leaf(counted({2, 4}), mesh, {p});
      const DTensor source = leaf(floats({10, 20, 30, 40}, {2, 2}), mesh, {p});
      const DTensor index = distribute(ids({3, 0, 1, 2}, {2, 2}), mesh, {p});
      const DTensor y = scatter(a, 1, index, source);
      EXPECT_THAT(whole(y), ElementsAre(20, 1, 2, 10, 4, 30, 40, 7));
      sum(mul(y, y)).backward();
      EXPECT_THAT(whole(a.grad()), ElementsAre(0, 2, 4, 0, 8, 0, 0, 14));
      EXPECT_THAT(whole(source.grad()), ElementsAre(20, 40, 60, 80));
    }
    // The written dim cut: each rank writes what it holds.
    const DTensor a = distribute(counted({2, 4}), mesh, {Shard(1)});
    const DTensor y = scatter(a, 1, replicate(DTensor(ids({3, 0}, {2, 1})), mesh),
                              replicate(DTensor(floats({10, 20}, {2, 1})), mesh));
    EXPECT_EQ(y.spec().placement(0), Shard(1));
    EXPECT_THAT(whole(y), ElementsAre(0, 1, 2, 10, 20, 5, 6, 7));
  });
}

TEST(Bincount, CountsOverACutIndex) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"d", 3}});
    const DTensor index = distribute(ids({1, 1, 3, 0, 1}, {5}), mesh, {Shard(0)});
    const DTensor counts = bincount(index, 5);
    EXPECT_EQ(counts.spec().placement(0), Partial());
    EXPECT_THAT(full(counts).to_vector<int64_t>(), ElementsAre(1, 3, 0, 1, 0));
  });
  EXPECT_THROW(bincount(DTensor(ids({5}, {1})), 5), ArgumentError);
}

}  // namespace
}  // namespace dtensor
