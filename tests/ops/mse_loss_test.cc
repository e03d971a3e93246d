#include "dtensor/ops/mse_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::ElementsAre;
using ::testing::FloatEq;

// pytorch#162692: of an uneven batch the mean is global.
TEST(MseLoss, DividesByTheGlobalCount) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const DTensor a = leaf(floats({1, 2, 6}, {3}), mesh, {Shard(0)});
    const DTensor b = distribute(floats({0, 0, 3}, {3}), mesh, {Shard(0)});
    DTensor loss = mse_loss(a, b);
    EXPECT_EQ(loss.spec().placement(0), Partial());
    EXPECT_THAT(whole(loss), ElementsAre(FloatEq(14.0F / 3)));
    loss.backward();
    EXPECT_THAT(whole(a.grad()), ElementsAre(FloatEq(2.0F / 3), FloatEq(4.0F / 3), 2));
    EXPECT_THAT(whole(mse_loss(a, b, LossReduction::kSum)), ElementsAre(14));
    EXPECT_THAT(whole(mse_loss(a, b, LossReduction::kNone)), ElementsAre(1, 4, 9));
  });
}

TEST(MseLoss, TakesFloatingOperandsOfOneDtype) {
  const DTensor a(floats({1}, {1}));
  EXPECT_THROW(mse_loss(a, DTensor(ids({1}, {1}))), ArgumentError);
  EXPECT_THROW(mse_loss(DTensor(ids({1}, {1})), DTensor(ids({1}, {1}))), ArgumentError);
}

}  // namespace
}  // namespace dtensor
