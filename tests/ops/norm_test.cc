#include "dtensor/ops/norm.h"

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

// pytorch#162692, pytorch#165962
TEST(Norm, OverACutDimWithAnEmptyRank) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 4}});
    const DTensor x = distribute(floats({1, 2, 4}, {3}), mesh, {Shard(0)});
    EXPECT_THAT(placement_error([&] { norm(x); }), HasSubstr("{.sharded_dims = true}"));
    const DTensor y = norm(x, {}, {.sharded_dims = true});
    EXPECT_TRUE(y.spec().is_replicated());
    EXPECT_THAT(piece(y), ElementsAre(FloatEq(std::sqrt(21.0F))));

    const DTensor one = norm(x, {}, {.p = 1});
    EXPECT_EQ(one.spec().placement(0), Partial());
    EXPECT_THAT(whole(one), ElementsAre(7));
    const DTensor most = norm(x, {}, {.p = INFINITY});
    EXPECT_EQ(most.spec().placement(0), Partial(PartialOp::kMax));
    EXPECT_THAT(whole(most), ElementsAre(4));
    EXPECT_THROW(norm(x, {}, {.p = 3}), ArgumentError);

    const PolicyScope policy(RedistributePolicy::kAuto);
    EXPECT_THAT(piece(norm(x)), ElementsAre(FloatEq(std::sqrt(21.0F))));
  });
}

// pytorch#159856: the norm of a sum is not the sum of norms.
TEST(Norm, RefusesAPartialOrResolvesItUnderAuto) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const DTensor x = partial({{1, 3}, {2, 1}}, {2}, mesh);
    EXPECT_THAT(placement_error([&] { norm(x); }), HasSubstr("redistribute(a, {Replicate()})"));
    EXPECT_THAT(placement_error([&] { norm(x, {}, {.sharded_dims = true}); }),
                HasSubstr("redistribute("));
    const PolicyScope policy(RedistributePolicy::kAuto);
    const DTensor y = norm(x);
    EXPECT_TRUE(y.spec().is_replicated());
    EXPECT_THAT(piece(y), ElementsAre(5));
  });
}

TEST(Norm, HasGradientZeroWhereItIsZero) {
  DTensor x(floats({3, 4, 0, 0}, {2, 2}));
  x.set_requires_grad(true);
  sum(norm(x, {1})).backward();
  EXPECT_THAT(piece(x.grad()), ElementsAre(FloatEq(0.6F), FloatEq(0.8F), 0, 0));
}

TEST(Norm, OfNothingIsZero) {
  const DTensor x(floats({}, {2, 0}));
  for (const double p : {1.0, 2.0, static_cast<double>(INFINITY)}) {
    EXPECT_EQ(norm(x, {}, {.p = p}).item(), 0) << p;
    EXPECT_THAT(piece(norm(x, {1}, {.p = p})), ElementsAre(0, 0)) << p;
  }
}

}  // namespace
}  // namespace dtensor
