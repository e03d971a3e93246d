#include "dtensor/ops/reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;

// pytorch#162692, pytorch#163241
TEST(Mean, DividesByTheGlobalCount) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const DTensor x = distribute(counted({3, 4}), mesh, {Shard(0)});
    const DTensor m = mean(x);
    EXPECT_EQ(m.spec().placement(0), Partial());
    EXPECT_FLOAT_EQ(piece(m)[0], comm.rank() == 0 ? 28.0F / 12.0F : 38.0F / 12.0F);
    const DTensor columns = mean(x, {0});
    EXPECT_EQ(moved_bytes(), 0);
    EXPECT_THAT(whole(m), ElementsAre(FloatEq(5.5F)));
    EXPECT_THAT(whole(columns), ElementsAre(FloatEq(4), FloatEq(5), FloatEq(6), FloatEq(7)));
  });
}

TEST(Mean, IsRightWithEmptyRanks) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 4}});
    const DTensor x = distribute(counted({1, 4}), mesh, {Shard(0)});
    EXPECT_THAT(whole(mean(x)), ElementsAre(1.5F));
    EXPECT_THAT(whole(mean(x, {0})), ElementsAre(0, 1, 2, 3));
  });
}

// 41 times the float next to 1/41 is not 1.
TEST(Mean, DividesAndDoesNotMultiplyByTheReciprocal) {
  DTensor x(Tensor::full({41}, 1.0));
  x.set_requires_grad(true);
  EXPECT_EQ(mean(x).item(), 1);
  sum(mul(mean(x, {0}, KeepDims::kYes), DTensor(Tensor::full({1}, 41.0)))).backward();
  EXPECT_THAT(piece(x.grad()), Each(1));
}

// pytorch#165962
TEST(Extremes, OfEmptyRanksAreTheIdentity) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 4}});
    const DTensor top = amax(distribute(floats({-1, -2, -4}, {3}), mesh, {Shard(0)}));
    EXPECT_EQ(top.spec().placement(0), Partial(PartialOp::kMax));
    if (comm.rank() == 3) {
      EXPECT_EQ(piece(top)[0], -INFINITY);
    }
    EXPECT_THAT(whole(top), ElementsAre(-1));

    const Tensor n = Tensor::of<int32_t>({9, 5}, {2});
    const DTensor low = amin(distribute(n, mesh, {Shard(0)}));
    EXPECT_EQ(low.spec().placement(0), Partial(PartialOp::kMin));
    EXPECT_EQ(full(low).to_vector<int32_t>(), std::vector<int32_t>{5});
    const int32_t mine = low.local_tensor().to_vector<int32_t>()[0];
    EXPECT_EQ(mine, comm.rank() == 0 ? 9 : comm.rank() == 2 ? 5 : INT32_MAX);
  });
}

// pytorch#115967: the gradient through a reduction is not divided.
TEST(Sum, HasAGradientThatIsNotDivided) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const DTensor a = leaf(floats({1, 2, 3, 4}, {2, 2}), mesh, {Shard(0)});
    const DTensor x = sum(a, {0});
    EXPECT_EQ(x.spec().placement(0), Partial());
    const DTensor y = redistribute(x, {Replicate()});
    EXPECT_THAT(piece(y), ElementsAre(4, 6));
    DTensor loss = sum(mul(y, distribute(floats({10, 20}, {2}), mesh, {Replicate()})));
    const int64_t before = moved_bytes();
    loss.backward();
    EXPECT_EQ(moved_bytes(), before) << "nothing moves in backward";
    EXPECT_EQ(a.grad().spec().placement(0), Shard(0));
    EXPECT_THAT(piece(a.grad()), ElementsAre(10, 20));
  });
}

TEST(Extremes, HaveNoGradientOverACutDim) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const DTensor a = leaf(floats({1, 2, 3, 4}, {2, 2}), mesh, {Shard(0)});
    const DTensor y = redistribute(amax(a, {0}), {Replicate()});
    EXPECT_THAT(piece(y), ElementsAre(3, 4));
    DTensor loss = sum(y);
    EXPECT_THAT(placement_error([&] { loss.backward(); }), HasSubstr("P(max)"));
  });
}

TEST(Extremes, ShareTheGradientAmongEquals) {
  DTensor x(floats({3, 7, 7, 1, 2, 2}, {2, 3}));
  x.set_requires_grad(true);
  sum(amax(x, {1})).backward();
  EXPECT_THAT(piece(x.grad()), ElementsAre(0, 0.5F, 0.5F, 0, 0.5F, 0.5F));
}

TEST(Extremes, GiveTheGradientToTheNaN) {
  DTensor x(floats({3, NAN, 7, 1, 2, 0}, {2, 3}));
  x.set_requires_grad(true);
  sum(amax(x, {1})).backward();
  EXPECT_THAT(piece(x.grad()), ElementsAre(0, 1, 0, 0, 1, 0));
}

// pytorch#162692, torchtitan#4167, torchtitan#1842: means are global, and a second backward adds.
TEST(Mean, OfAnUnevenBatchHasTheGradientOfOneRank) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 4}});
    const DTensor w = leaf(floats({2}, {}), mesh, {});
    const auto loss_of = [&](const Tensor& batch) {
      const DTensor product = mul(distribute(batch, mesh, {Shard(0)}), w);
      return mean(mul(product, product));
    };
    DTensor loss = loss_of(floats({1, 2, 3, 4, 5}, {5}));
    const float parts[] = {4.0F, 7.2F, 12.8F, 20.0F};
    EXPECT_FLOAT_EQ(piece(loss)[0], parts[comm.rank()]);
    EXPECT_NEAR(loss.item(), 44.0, 1e-5);
    loss.backward();
    EXPECT_FLOAT_EQ(piece(w.grad())[0], 44.0F);
    loss_of(floats({1, 2, 3, 4, 5}, {5})).backward();
    EXPECT_FLOAT_EQ(piece(w.grad())[0], 88.0F);

    DTensor v = leaf(floats({2}, {}), mesh, {});
    const DTensor small = mul(distribute(floats({1, 2, 3}, {3}), mesh, {Shard(0)}), v);
    DTensor few = mean(mul(small, small));
    EXPECT_NEAR(few.item(), 18.666667, 1e-5);
    few.backward();
    EXPECT_FLOAT_EQ(piece(v.grad())[0], 18.666667F);
  });
}

TEST(Reduction, KeepsADimWithSizeOneWhereAsked) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const DTensor x = leaf(counted({3, 2}), mesh, {Shard(0)});
    const DTensor columns = sum(x, {0}, KeepDims::kYes);
    EXPECT_EQ(columns.shape(), (Shape{1, 2}));
    EXPECT_EQ(columns.spec().placement(0), Partial());
    EXPECT_THAT(whole(columns), ElementsAre(6, 9));
    const DTensor rows = mean(x, {-1}, KeepDims::kYes);
    EXPECT_EQ(rows.shape(), (Shape{3, 1}));
    EXPECT_EQ(rows.spec().placement(0), Shard(0));
    EXPECT_THAT(whole(rows), ElementsAre(0.5F, 2.5F, 4.5F));
    sum(mul(x, rows)).backward();
    // d/dx of sum(x mean(x)): twice the mean.
    EXPECT_THAT(whole(x.grad()), ElementsAre(1, 1, 5, 5, 9, 9));
  });
}

TEST(Prod, OverACutDimIsPartialAndZerosHaveAGradient) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 4}});
    const DTensor y = prod(distribute(floats({2, 3, -4}, {3}), mesh, {Shard(0)}));
    EXPECT_EQ(y.spec().placement(0), Partial(PartialOp::kProd));
    EXPECT_EQ(piece(y)[0], comm.rank() == 0   ? 2.0F
                           : comm.rank() == 1 ? 3.0F
                           : comm.rank() == 2 ? -4.0F
                                              : 1.0F);
    EXPECT_THAT(whole(y), ElementsAre(-24));
  });
  DTensor x(floats({2, 0, 5, 0, 0, 3}, {2, 3}));
  x.set_requires_grad(true);
  sum(prod(x, {1})).backward();
  EXPECT_THAT(piece(x.grad()), ElementsAre(0, 10, 0, 0, 0, 0));
}

TEST(Flags, OfEmptyRanksAreTheIdentity) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 4}});
    const auto flags = [&](const Tensor& t) { return distribute(t, mesh, {Shard(0)}); };
    const auto value = [](const DTensor& t) -> bool { return full(t).to_vector<bool>()[0]; };
    const DTensor none = flags(floats({0, 0, 0}, {3}));
    const DTensor one = flags(floats({0, 0.5F, 0}, {3}));
    const DTensor every = flags(floats({1, NAN, -2}, {3}));
    EXPECT_EQ(any(one).dtype(), DType::kBool);
    EXPECT_EQ(any(one).spec().placement(0), Partial(PartialOp::kMax));
    EXPECT_EQ(all(one).spec().placement(0), Partial(PartialOp::kMin));
    EXPECT_FALSE(value(any(none)));
    EXPECT_TRUE(value(any(one)));
    EXPECT_FALSE(value(all(one)));
    EXPECT_TRUE(value(all(every)));
    EXPECT_EQ(count_nonzero(every).item(), 3.0);
    EXPECT_EQ(count_nonzero(one).spec().placement(0), Partial());
  });
  EXPECT_FALSE(any(DTensor(floats({}, {0}))).local_tensor().to_vector<bool>()[0]);
  EXPECT_TRUE(all(DTensor(floats({}, {0}))).local_tensor().to_vector<bool>()[0]);
}

TEST(Reduction, RefusesADimThatIsNotThereOrTwice) {
  const DTensor x(counted({2, 3}));
  EXPECT_THROW(sum(x, {2}), ArgumentError);
  EXPECT_THROW(sum(x, {0, -2}), ArgumentError);
  EXPECT_THROW(mean(DTensor(Tensor::arange(3, DType::kInt64))), ArgumentError);
}

}  // namespace
}  // namespace dtensor
