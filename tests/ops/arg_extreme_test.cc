#include "dtensor/ops/arg_extreme.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int64_t> indices(const DTensor& t) { return full(t).to_vector<int64_t>(); }

// pytorch#168940, pytorch#173936
TEST(ArgMax, IsGlobalAndHasNoRowOverACutDim) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 4}});
    const Tensor rows = floats({3, 9, 1, 4, 2, 0, 5, 8, 1, 6, 7, 0, 5, 4, 3, 2}, {4, 4});
    const DTensor by_column = distribute(rows, mesh, {Shard(1)});
    const DTensor ties = distribute(floats({3, 7, 1, 7, 7}, {5}), mesh, {Shard(0)});
    EXPECT_THAT(placement_error([&] { argmax(by_column, 1); }),
                HasSubstr("redistribute(a, {Replicate()})"));
    EXPECT_THAT(placement_error([&] { argmax(ties); }), HasSubstr("redistribute("));
    const DTensor down = argmax(by_column, 0);
    EXPECT_EQ(down.spec().placement(0), Shard(0));
    EXPECT_EQ(moved_bytes(), 0);
    EXPECT_THAT(indices(down), ElementsAre(3, 0, 2, 1));

    const PolicyScope policy(RedistributePolicy::kAuto);
    const DTensor at = argmax(by_column, 1);
    EXPECT_EQ(at.dtype(), DType::kInt64);
    EXPECT_THAT(indices(at), ElementsAre(1, 3, 2, 0));
    EXPECT_THAT(whole(amax(by_column, {1})), ElementsAre(9, 8, 7, 5));
    EXPECT_THAT(indices(argmax(ties)), ElementsAre(1));
    EXPECT_THAT(indices(argmin(ties, 0, KeepDims::kYes)), ElementsAre(2));
  });
}

TEST(ArgMax, OfTheWholeTensorIsRowMajor) {
  const DTensor x(floats({1, 5, 2, 7, 7, 0}, {2, 3}));
  EXPECT_THAT(indices(argmax(x)), ElementsAre(3));
  EXPECT_THAT(indices(argmin(x)), ElementsAre(5));
  EXPECT_EQ(argmax(x, {}, KeepDims::kYes).shape(), (Shape{1, 1}));
  EXPECT_THAT(indices(argmax(x, -1)), ElementsAre(1, 0));
  EXPECT_THAT(indices(argmax(DTensor(ids({3, -1, 3}, {3})))), ElementsAre(0));
  EXPECT_THAT(indices(argmax(DTensor(floats({1, NAN, 9, NAN}, {4})))), ElementsAre(1));
}

TEST(ArgMax, OfNothingIsRefused) {
  EXPECT_THROW(argmax(DTensor(floats({}, {0}))), ArgumentError);
  EXPECT_THROW(argmax(DTensor(floats({}, {2, 0})), 1), ArgumentError);
  EXPECT_EQ(argmax(DTensor(floats({}, {2, 0})), 0).shape(), Shape{0});
  EXPECT_THROW(argmax(DTensor(counted({2})), 1), ArgumentError);
}

// The first of equal ones has the value and all of the gradient.
TEST(MaxAlong, GivesValuesAndWhereTheyStand) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const DTensor x = leaf(floats({3, 7, 7, 5, 0, 5}, {2, 3}), mesh, {Shard(0)});
    const ExtremeResult most = max_along(x, 1);
    EXPECT_EQ(moved_bytes(), 0);
    EXPECT_THAT(whole(most.values), ElementsAre(7, 5));
    EXPECT_THAT(indices(most.indices), ElementsAre(1, 0));
    sum(most.values).backward();
    EXPECT_THAT(whole(x.grad()), ElementsAre(0, 1, 0, 1, 0, 0));
    const ExtremeResult least = min_along(x, 1, KeepDims::kYes);
    EXPECT_EQ(least.values.shape(), (Shape{2, 1}));
    EXPECT_THAT(whole(least.values), ElementsAre(3, 0));
    EXPECT_THAT(indices(least.indices), ElementsAre(0, 1));
    EXPECT_THAT(placement_error([&] { max_along(x, 0); }), HasSubstr("max_along"));
  });
}

}  // namespace
}  // namespace dtensor
