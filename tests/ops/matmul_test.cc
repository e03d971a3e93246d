#include "dtensor/ops/matmul.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// pytorch#150336, torchtitan#2106: column then row, hidden size 5 over 2 ranks, bias once.
TEST(Linear, ColumnThenRowAddsTheBiasOnce) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const DTensor x = leaf(floats({1, 2}, {1, 2}), mesh, {Replicate()});
    const DTensor w1 = leaf(floats({1, 0, 0, 1, 1, 1, 2, 1, 1, 2}, {5, 2}), mesh, {Shard(0)});
    const DTensor w2 = leaf(floats({1, 1, 1, 1, 1, 1, -1, 1, -1, 1}, {2, 5}), mesh, {Shard(1)});
    const DTensor bias = leaf(floats({100, 200}, {2}), mesh, {Replicate()});
    const DTensor hidden = linear(x, w1);
    EXPECT_EQ(hidden.local_tensor().size(1), comm.rank() == 0 ? 3 : 2);
    EXPECT_THAT(whole(hidden), ElementsAre(1, 2, 3, 4, 5));
    const DTensor product = linear(hidden, w2);
    EXPECT_THAT(piece(product), comm.rank() == 0 ? ElementsAre(6, 2) : ElementsAre(9, 1));
    const DTensor y = redistribute(linear(hidden, w2, bias), {Replicate()});
    EXPECT_THAT(piece(y), ElementsAre(115, 203));
    sum(y).backward();
    EXPECT_THAT(piece(bias.grad()), ElementsAre(1, 1));
    EXPECT_THAT(piece(x.grad()), ElementsAre(6, 6));
    EXPECT_THAT(whole(w2.grad()), ElementsAre(1, 2, 3, 4, 5, 1, 2, 3, 4, 5));
    EXPECT_EQ(w1.grad().spec().placement(0), Shard(0));
  });
}

// pytorch#166598, pytorch#166999: cut alike means the same mesh dims in the same order.
TEST(Matmul, OfAnInnerDimCutInTwoOrdersIsRefused) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"a", 2}, {"b", 2}});
    const auto reversed = [&](const Shape& shape, int d) {
      return Layout::replicated(mesh.layout(), shape).with(1, Shard(d)).with(0, Shard(d));
    };
    const DTensor x = distribute(counted({2, 5}), mesh, {Shard(1), Shard(1)});
    const DTensor y = distribute(counted({5, 2}), mesh, reversed({5, 2}, 0));
    EXPECT_THAT(placement_error([&] { matmul(x, y); }),
                AllOf(HasSubstr("by a, then b"), HasSubstr("by b, then a"), HasSubstr("; or ")));
    const DTensor p = distribute(counted({5}), mesh, {Shard(0), Shard(0)});
    const DTensor q = distribute(floats({10, 20, 30, 40, 50}, {5}), mesh, reversed({5}, 0));
    EXPECT_NE(placement_error([&] { add(p, q); }), "");
    const DTensor inner = distribute(counted({5}), mesh, {Replicate(), Shard(0)});
    EXPECT_THAT(whole(add(inner, q)), ElementsAre(10, 21, 32, 43, 54));
    EXPECT_NE(placement_error([&] { add(inner, p); }), "");

    const PolicyScope policy(RedistributePolicy::kAuto);
    EXPECT_THAT(whole(matmul(x, y)), ElementsAre(60, 70, 160, 195));
    EXPECT_THAT(whole(add(p, q)), ElementsAre(10, 21, 32, 43, 54));
  });
}

TEST(Matmul, OfF16IsThatOfF32RoundedOnce) {
  std::vector<float> values;
  for (int i = 0; i < 60; ++i) values.push_back(static_cast<float>(i * 7 % 13) * 0.37F - 2.0F);
  const Tensor a = floats(values, {6, 10}).to(DType::kFloat16);
  const Tensor b = floats(values, {10, 6}).to(DType::kFloat16);
  const DTensor y = matmul(DTensor(a), DTensor(b));
  const DTensor wide = matmul(DTensor(a.to(DType::kFloat32)), DTensor(b.to(DType::kFloat32)));
  EXPECT_EQ(y.dtype(), DType::kFloat16);
  EXPECT_EQ(y.local_tensor().to(DType::kFloat32).to_vector<float>(),
            wide.local_tensor().to(DType::kFloat16).to(DType::kFloat32).to_vector<float>());
}

TEST(Matmul, OfShapesThatDoNotFitNamesThem) {
  const DTensor a(counted({2, 3}));
  EXPECT_THROW(matmul(a, DTensor(counted({2, 3}))), ArgumentError);
  EXPECT_THROW(matmul(a, DTensor(counted({4}))), ArgumentError);
  EXPECT_THROW(linear(a, DTensor(counted({2, 4}))), ArgumentError);
  EXPECT_THROW(matmul(a, DTensor(Tensor::arange(3, DType::kInt64))), ArgumentError);
}

// Half of [100,200] and twice [9,12], of which each rank has a part.
TEST(AddMM, CountsTheAddendOnceInAPartialProduct) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const DTensor a = distribute(floats({1, 1, 1}, {1, 3}), mesh, {Shard(1)});
    const DTensor b = distribute(floats({1, 2, 3, 4, 5, 6}, {3, 2}), mesh, {Shard(0)});
    const DTensor c = leaf(floats({100, 200}, {2}), mesh, {Replicate()});
    const DTensor y = addmm(c, a, b, {.alpha = 2.0, .beta = 0.5});
    EXPECT_EQ(y.spec().placement(0), Partial());
    EXPECT_THAT(whole(y), ElementsAre(50 + 2 * 9, 100 + 2 * 12));
    sum(y).backward();
    EXPECT_THAT(piece(c.grad()), ElementsAre(0.5, 0.5));
  });
  const DTensor m(counted({2, 1, 2}));
  EXPECT_THAT(piece(baddbmm(DTensor(floats({1}, {1})), m, reshape(m, {2, 2, 1}))),
              ElementsAre(1 + 1, 1 + 13));
  EXPECT_THROW(addmm(m, m, m), ArgumentError);
  EXPECT_THROW(baddbmm(m, m, DTensor(counted({2, 2}))), ArgumentError);
}

}  // namespace
}  // namespace dtensor
