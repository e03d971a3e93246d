#include "dtensor/ops/logsumexp.h"

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

TEST(LogSumExp, OverACutDimWithAnEmptyRank) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 4}});
    const DTensor x = distribute(floats({1000, 1001, 999}, {3}), mesh, {Shard(0)});
    EXPECT_THAT(placement_error([&] { logsumexp(x); }), HasSubstr("{.sharded_dims = true}"));
    const DTensor y = logsumexp(x, {}, {.sharded_dims = true});
    EXPECT_TRUE(y.spec().is_replicated());
    EXPECT_THAT(piece(y),
                ElementsAre(FloatEq(1000 + std::log(1 + std::exp(1.0F) + std::exp(-1.0F)))));
  });
}

TEST(LogSumExp, OfInfinities) {
  const DTensor low(floats({-INFINITY, -INFINITY, 0, 0}, {2, 2}));
  EXPECT_THAT(piece(logsumexp(low, {1})), ElementsAre(-INFINITY, FloatEq(std::log(2.0F))));
  const DTensor high(floats({INFINITY, 0}, {2}));
  EXPECT_THAT(piece(logsumexp(high)), ElementsAre(INFINITY));
  EXPECT_THAT(piece(logsumexp(DTensor(floats({}, {0})))), ElementsAre(-INFINITY));
}

}  // namespace
}  // namespace dtensor
