#include "dtensor/ops/softmax.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

// pytorch#190746: the gradient is that of log_softmax, whatever comes from above.
TEST(LogSoftmax, OverShardedClassesAsksAndHasItsOwnGradient) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 4}});
    const DTensor x = leaf(Tensor::zeros({1, 5}), mesh, {Shard(1)});
    EXPECT_THAT(placement_error([&] { log_softmax(x); }), HasSubstr("{.sharded_classes = true}"));
    const DTensor y = log_softmax(x, {.sharded_classes = true});
    EXPECT_EQ(y.spec().placement(0), Shard(1));
    EXPECT_THAT(whole(y), Pointwise(FloatNear(1e-6F), std::vector<float>(5, -1.6094379F)));
    auto& ledger = Context::current().slot<Ledger>();
    ledger.clear();
    sum(mul(y, distribute(floats({1, 2, 3, 4, 5}, {1, 5}), mesh, {Shard(1)}))).backward();
    EXPECT_THAT(whole(x.grad()), Pointwise(FloatNear(1e-6F), std::vector<float>{-2, -1, 0, 1, 2}));
    ASSERT_FALSE(ledger.entries().empty());
    EXPECT_EQ(ledger.entries()[0].kind, StepKind::kAllReduce);
    EXPECT_EQ(ledger.entries()[0].of, "log_softmax");
  });
}

TEST(Softmax, OverShardedClassesIsThatOfTheWholeRow) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 4}});
    const Tensor values = floats({0, 1, 2, 3, -1, 4}, {3, 2});  // columns 0, 2, -1 and 1, 3, 4
    const DTensor x = leaf(values, mesh, {Shard(0)});
    EXPECT_THAT(placement_error([&] { softmax(x, {.dim = 0}); }),
                HasSubstr("{.sharded_classes = true}"));
    const DTensor y = softmax(x, {.dim = 0, .sharded_classes = true});
    EXPECT_EQ(y.spec().placement(0), Shard(0));
    std::vector<float> want;
    for (const int row : {0, 1, 2}) {
      const float column0[] = {0, 2, -1};
      const float column1[] = {1, 3, 4};
      want.push_back(std::exp(column0[row]) / (1 + std::exp(2.0F) + std::exp(-1.0F)));
      want.push_back(std::exp(column1[row]) / (std::exp(1.0F) + std::exp(3.0F) + std::exp(4.0F)));
    }
    EXPECT_THAT(whole(y), Pointwise(FloatNear(1e-6F), want));
    sum(y).backward();
    EXPECT_THAT(whole(x.grad()), Pointwise(FloatNear(1e-6F), std::vector<float>(6, 0.0F)));
  });
}

TEST(Softmax, OfAnInnerDimGoesAlongIt) {
  const DTensor x(counted({2, 3, 2}));
  const std::vector<float> y = piece(softmax(x, {.dim = 1}));
  const float total = 1 + std::exp(2.0F) + std::exp(4.0F);
  EXPECT_FLOAT_EQ(y[0], 1 / total);
  EXPECT_FLOAT_EQ(y[2], std::exp(2.0F) / total);
  EXPECT_FLOAT_EQ(y[4], std::exp(4.0F) / total);
  EXPECT_FLOAT_EQ(y[5], y[4]);
  const DTensor narrow(counted({2, 3}).to(DType::kFloat16));
  EXPECT_EQ(softmax(narrow).dtype(), DType::kFloat16);
}

TEST(LogSoftmax, DoesNotOverflow) {
  const DTensor x(floats({1000, 0, -1000, -1000}, {2, 2}));
  const std::vector<float> y = piece(log_softmax(x));
  EXPECT_EQ(y[0], 0.0F);
  EXPECT_EQ(y[1], -1000.0F);
  EXPECT_FLOAT_EQ(y[2], -std::log(2.0F));
}

}  // namespace
}  // namespace dtensor
