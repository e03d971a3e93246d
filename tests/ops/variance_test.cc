#include "dtensor/ops/variance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;

// pytorch#162692, pytorch#165962: over a cut dim with an empty rank.
TEST(Var, OverACutDimIsAskedForAndTheSameOnEveryRank) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 4}});
    const DTensor x = distribute(floats({1, 2, 4}, {3}), mesh, {Shard(0)});
    const std::string e = placement_error([&] { var(x); });
    EXPECT_THAT(e, HasSubstr("{.sharded_dims = true}"));
    EXPECT_THAT(e, HasSubstr("redistribute(a, {Replicate()})"));
    EXPECT_EQ(moved_bytes(), 0);

    const DTensor sample = var(x, {}, {.sharded_dims = true});
    EXPECT_TRUE(sample.spec().is_replicated());
    EXPECT_THAT(piece(sample), ElementsAre(FloatEq(7.0F / 3)));
    EXPECT_THAT(piece(var(x, {}, {.correction = 0, .sharded_dims = true})),
                ElementsAre(FloatEq(14.0F / 9)));
    EXPECT_THAT(piece(stddev(x, {0}, {.keep = KeepDims::kYes, .sharded_dims = true})),
                ElementsAre(FloatEq(std::sqrt(7.0F / 3))));
    const auto& entries = Context::current().slot<Ledger>().entries();
    ASSERT_EQ(entries.size(), 6U) << "two all-reduces each";
    EXPECT_EQ(entries.front().op, "var");
    EXPECT_EQ(entries.front().cause, Cause::kExplicit);

    const PolicyScope policy(RedistributePolicy::kAuto);
    EXPECT_THAT(piece(var(x)), ElementsAre(FloatEq(7.0F / 3)));
  });
}

TEST(Var, OfAnUncutDimSendsNothing) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const DTensor x = distribute(floats({1, 2, 4, 0, 0, 3}, {2, 3}), mesh, {Shard(0)});
    const DTensor y = var(x, {1});
    EXPECT_EQ(y.spec().placement(0), Shard(0));
    EXPECT_THAT(piece(y), ElementsAre(FloatEq(comm.rank() == 0 ? 7.0F / 3 : 3.0F)));
    EXPECT_EQ(moved_bytes(), 0);
  });
}

// Values far from 0: the squares of the distances do not cancel.
TEST(Var, OfValuesFarFromZeroKeepsItsDigits) {
  const DTensor x(floats({10001, 10002, 10003, 10004}, {4}));
  EXPECT_THAT(piece(var(x)), ElementsAre(FloatEq(5.0F / 3)));
}

TEST(Stddev, OfEqualNumbersIsZeroWithGradientZero) {
  DTensor x(floats({3, 3, 3, 1, 2, 3}, {2, 3}));
  x.set_requires_grad(true);
  const DTensor y = stddev(x, {1});
  EXPECT_THAT(piece(y), ElementsAre(0, 1));
  sum(y).backward();
  EXPECT_THAT(piece(x.grad()), ElementsAre(0, 0, 0, FloatEq(-0.5F), 0, FloatEq(0.5F)));
  EXPECT_EQ(stddev(DTensor(Tensor::full({41}, 1.0))).item(), 0) << "the mean is 1";
  EXPECT_TRUE(std::isnan(stddev(DTensor(floats({1, NAN}, {2}))).item()));
}

}  // namespace
}  // namespace dtensor
