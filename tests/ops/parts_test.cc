#include "dtensor/ops/parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "dtensor/ops/like.h"
#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Cat, PutsPartsOneAfterTheOther) {
  const DTensor a(counted({2, 2}));
  const DTensor b(floats({10, 11}, {2, 1}));
  EXPECT_THAT(piece(cat({a, b}, 1)), ElementsAre(0, 1, 10, 2, 3, 11));
  EXPECT_THAT(piece(cat({a, DTensor(counted({0, 2})), a})), ElementsAre(0, 1, 2, 3, 0, 1, 2, 3));
  EXPECT_THROW(cat({a, b}, 0), ArgumentError);
  EXPECT_THROW(cat(std::span<const DTensor>(), 0), ArgumentError);
  EXPECT_THROW(cat({a, DTensor(ids({1}, {1, 1}))}), ArgumentError);
}

// More parts than letters fit in a line of a rule: heads, experts.
TEST(Parts, AreAsManyAsAskedFor) {
  const DTensor x(counted({64, 2, 1, 1}));
  const std::vector<DTensor> rows = unbind(x, 0);
  ASSERT_EQ(rows.size(), 64U);
  EXPECT_THAT(piece(rows[63]), ElementsAre(126, 127));
  EXPECT_EQ(piece(stack(std::span<const DTensor>(rows), 0)), piece(x));
  EXPECT_EQ(piece(cat(std::span<const DTensor>(rows), 0)), piece(x));
  EXPECT_EQ(chunk(x, 32, 0).size(), 32U);
}

TEST(Cat, OfAPartialAndAReplicatedCountsTheReplicatedOnce) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const DTensor p = partial({{1, 2}, {10, 20}}, {2}, mesh);
    const DTensor r = replicate(DTensor(floats({5}, {1})), mesh);
    const DTensor y = cat({p, r});
    EXPECT_EQ(y.spec().placement(0), Partial());
    EXPECT_THAT(whole(y), ElementsAre(11, 22, 5));
  });
}

TEST(Cat, RefusesTheDimThatIsCutAlikeOnAllRanks) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const DTensor x = distribute(counted({4, 2}), mesh, {Shard(0)});
    EXPECT_THAT(placement_error([&] { cat({x, x}); }), HasSubstr("may not be cut"));
    EXPECT_EQ(cat({x, x}, 1).spec().placement(0), Shard(0));
    EXPECT_EQ(moved_bytes(), 0);
  });
}

TEST(Cat, OfThirtyLengths) {
  std::vector<DTensor> parts;
  std::vector<float> want;
  for (int64_t n = 0; n < 30; ++n) {
    parts.emplace_back(counted({n}));
    parts.back().set_requires_grad(true);
    for (int64_t i = 0; i < n; ++i) want.push_back(static_cast<float>(i));
  }
  const DTensor y = cat(parts);
  EXPECT_EQ(piece(y), want);
  std::vector<int64_t> sizes;
  for (int64_t n = 0; n < 30; ++n) sizes.push_back(n);
  const std::vector<DTensor> apart = split(y, sizes);
  ASSERT_EQ(apart.size(), 30U);
  EXPECT_EQ(piece(apart[29]), counted({29}).to_vector<float>());
  sum(apart[29]).backward();
  EXPECT_EQ(piece(parts[29].grad()), std::vector<float>(29, 1.0F));
}

// The rule of a call is kept, and taken by the next equal one.
TEST(Cat, OfHundredsOfOperandsTwice) {
  for (const int64_t n : {127, 128, 129, 300}) {
    const auto count = static_cast<size_t>(n);
    std::vector<DTensor> parts;
    for (int64_t i = 0; i < n; ++i) {
      parts.emplace_back(floats({static_cast<float>(i), static_cast<float>(-i)}, {2}));
    }
    std::vector<float> want;
    for (const DTensor& part : parts) {
      for (const float v : piece(part)) want.push_back(v);
    }
    DTensor whole(floats(want, {n, 2}));
    whole.set_requires_grad(true);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(piece(stack(parts)), want);
      EXPECT_EQ(piece(cat(parts)), want);
      const std::vector<DTensor> rows = unbind(whole, 0);
      ASSERT_EQ(rows.size(), count);
      whole.set_grad({});
      sum(rows[count - 1]).backward();
      std::vector<float> slope(2 * count, 0);
      slope[2 * count - 1] = slope[2 * count - 2] = 1;
      EXPECT_EQ(piece(whole.grad()), slope);
    }
  }
}

// Lengths that differ: what the rule of a call found is not taken by one that it does not fit.
TEST(Stack, OfHundredsOfOperandsRefusesAnotherLength) {
  std::vector<DTensor> parts(200, DTensor(counted({2})));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(stack(parts).shape(), (Shape{200, 2}));
  parts[199] = DTensor(counted({3}));
  EXPECT_THROW(stack(parts), ArgumentError);
}

TEST(Stack, MakesANewDim) {
  DTensor a(counted({2}));
  DTensor b(floats({10, 11}, {2}));
  a.set_requires_grad(true);
  const DTensor y = stack({a, b}, -1);
  EXPECT_EQ(y.shape(), (Shape{2, 2}));
  EXPECT_THAT(piece(y), ElementsAre(0, 10, 1, 11));
  EXPECT_THAT(piece(stack({a, b})), ElementsAre(0, 1, 10, 11));
  EXPECT_THAT(piece(stack({DTensor(Tensor::full({}, 3.0)), DTensor(Tensor::full({}, 4.0))})),
              ElementsAre(3, 4));
  EXPECT_THROW(stack({a, DTensor(counted({3}))}), ArgumentError);
}

TEST(Split, GivesViewsOfTheSizesAsked) {
  const DTensor x(counted({2, 5}));
  const std::vector<DTensor> parts = split(x, {2, 0, 3}, 1);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_THAT(piece(parts[0]), ElementsAre(0, 1, 5, 6));
  EXPECT_THAT(piece(parts[1]), IsEmpty());
  EXPECT_THAT(piece(parts[2]), ElementsAre(2, 3, 4, 7, 8, 9));
  EXPECT_EQ(parts[2].local_tensor().storage(), x.local_tensor().storage());
  EXPECT_THROW(split(x, {2, 2}, 1), ArgumentError);
  EXPECT_THROW(split(x, {6, -1}, 1), ArgumentError);
}

TEST(Chunk, FollowsTheCutRule) {
  const DTensor x(counted({11}));
  std::vector<int64_t> sizes;
  for (const DTensor& part : chunk(x, 4)) sizes.push_back(part.size(0));
  EXPECT_THAT(sizes, ElementsAre(3, 3, 3, 2));
  EXPECT_THROW(chunk(x, 0), ArgumentError);
}

TEST(Unbind, GivesEachIndexWithoutTheDim) {
  DTensor x(counted({2, 3}));
  x.set_requires_grad(true);
  const std::vector<DTensor> columns = unbind(x, 1);
  ASSERT_EQ(columns.size(), 3U);
  EXPECT_THAT(piece(columns[2]), ElementsAre(2, 5));
  sum(columns[2]).backward();  // the others count as zeros
  EXPECT_THAT(piece(x.grad()), ElementsAre(0, 0, 1, 0, 0, 1));
  EXPECT_THAT(unbind(DTensor(counted({0, 3}))), IsEmpty());
}

TEST(Like, TakesShapeMeshAndCutsAndNoPartial) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 3}});
    const DTensor x = distribute(counted({5, 2}), mesh, {Shard(0)});
    const DTensor ones = ones_like(x);
    EXPECT_EQ(ones.layout(), x.layout());
    EXPECT_EQ(whole(ones), std::vector<float>(10, 1.0F));
    EXPECT_EQ(zeros_like(x, {.dtype = DType::kInt64}).dtype(), DType::kInt64);
    const DTensor p = distribute(counted({2}), mesh, {Partial()});
    EXPECT_EQ(full_like(p, 3.0).spec().placement(0), Replicate());
    EXPECT_THAT(whole(full_like(p, 3.0)), ElementsAre(3, 3));

    EXPECT_THAT(piece(arange(1, 2, x, {.step = 0.25})), ElementsAre(1, 1.25, 1.5, 1.75));
    EXPECT_THAT(piece(arange(3, 0, x, {.step = -1})), ElementsAre(3, 2, 1));
    EXPECT_THAT(piece(linspace(0, 1, 5, x)), ElementsAre(0, 0.25, 0.5, 0.75, 1));
    EXPECT_THAT(piece(linspace(2, 9, 1, x)), ElementsAre(2));
    EXPECT_THAT(piece(eye(2, x, 3)), ElementsAre(1, 0, 0, 0, 1, 0));
    EXPECT_EQ(eye(2, x).spec().placement(0), Replicate());
    EXPECT_THROW(arange(0, 1, x, {.step = 0}), ArgumentError);
    EXPECT_EQ(arange(0, 256, x, {.dtype = DType::kUInt8}).shape(), Shape{256});
    EXPECT_THROW(arange(0, 257, x, {.dtype = DType::kUInt8}), ArgumentError);
    EXPECT_THROW(linspace(0, 300, 2, x, DType::kUInt8), ArgumentError);
    EXPECT_THROW(full_like(x, -1, {.dtype = DType::kUInt8}), ArgumentError);
    const DTensor bytes = full_like(x, 7, {.dtype = DType::kUInt8});
    EXPECT_THROW(fill_(bytes, 300), ArgumentError);
    EXPECT_THAT(whole(cast(bytes, DType::kFloat32)), ::testing::Each(7));
    EXPECT_THROW(arange(0, 1e30, x, {}), ArgumentError);
  });
}

}  // namespace
}  // namespace dtensor
