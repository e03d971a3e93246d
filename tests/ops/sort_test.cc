#include "dtensor/ops/sort.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "dtensor/ops/scan.h"
#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int64_t> integers(const DTensor& t) {
  return full(t).contiguous().to_vector<int64_t>();
}

TEST(Sort, KeepsEqualElementsInTheOrderOfTheirIndices) {
  const DTensor x(floats({3, 1, 3, 2, 1}, {5}));
  EXPECT_THAT(piece(sort(x).values), ElementsAre(1, 1, 2, 3, 3));
  EXPECT_THAT(integers(sort(x).indices), ElementsAre(1, 4, 3, 0, 2));
  EXPECT_THAT(piece(sort(x, {.descending = true}).values), ElementsAre(3, 3, 2, 1, 1));
  EXPECT_THAT(integers(argsort(x, {.descending = true})), ElementsAre(0, 2, 3, 1, 4));
  EXPECT_THAT(integers(topk(x, 3).indices), ElementsAre(0, 2, 3));
  EXPECT_THAT(piece(topk(x, 1).values), ElementsAre(3));
  EXPECT_EQ(topk(x, 0).values.shape(), Shape{0});
  EXPECT_THROW(topk(x, 6), ArgumentError);
  EXPECT_THROW(sort(DTensor(Tensor::full({}, 1.0))), ArgumentError);
}

TEST(Sort, AlongAnInnerDimOfAStridedTensor) {
  const DTensor x(floats({5, 1, 4, 2, 3, 9}, {2, 3}));
  EXPECT_THAT(piece(sort(x, {.dim = 0}).values), ElementsAre(2, 1, 4, 5, 3, 9));
  EXPECT_THAT(integers(argsort(transpose(x), {.dim = 0})), ElementsAre(1, 0, 2, 1, 0, 2));
  const DTensor numbers(ids({7, -8, 9}, {3}));
  EXPECT_THAT(integers(sort(numbers).values), ElementsAre(-8, 7, 9));
  EXPECT_EQ(sort(cast(x, DType::kBFloat16)).values.dtype(), DType::kBFloat16);
}

TEST(Sort, TakesNaNForTheLargest) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const DTensor x(floats({1, nan, -1, nan, 0}, {5}));
  EXPECT_THAT(integers(argsort(x)), ElementsAre(2, 4, 0, 1, 3));
  EXPECT_THAT(integers(topk(x, 3).indices), ElementsAre(1, 3, 0));
}

// pytorch#168940, pytorch#173936: no row gives the indices of a cut dim; moved, they are global.
TEST(Sort, IndicesAreGlobalOrThereIsNoRow) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 4}});
    const DTensor x = distribute(floats({3, 9, 1, 4, 2, 0, 5, 8, 1, 6, 7, 0, 5, 4, 3, 2}, {4, 4}),
                                 mesh, {Shard(1)});
    for (const auto& f : std::vector<std::function<void()>>{[&] { topk(x, 1); }, [&] { sort(x); },
                                                            [&] { argsort(x); }}) {
      EXPECT_THAT(placement_error(f), AllOf(HasSubstr("S(1)"), HasSubstr("may not be cut"),
                                            HasSubstr("Use redistribute(a, {")));
    }
    const PolicyScope policy(RedistributePolicy::kAuto);
    const SortResult most = topk(x, 1);
    EXPECT_THAT(integers(most.indices), ElementsAre(1, 3, 2, 0));
    EXPECT_THAT(whole(most.values), ElementsAre(9, 8, 7, 5));
    const DTensor ties = distribute(floats({3, 7, 1, 7, 7}, {5}), mesh, {Shard(0)});
    EXPECT_THAT(integers(topk(ties, 2).indices), ElementsAre(1, 3));
    EXPECT_THAT(integers(argsort(ties, {.descending = true})), ElementsAre(1, 3, 4, 0, 2));
  });
}

TEST(Sort, PassesTheGradientToWhereValuesStood) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const DTensor x = leaf(floats({3, 1, 2, 6, 5, 4}, {2, 3}), mesh, {Shard(0)});
    const DTensor w = replicate(DTensor(floats({10, 20}, {2})), mesh);
    sum(mul(topk(x, 2).values, w)).backward();
    EXPECT_THAT(whole(x.grad()), ElementsAre(10, 0, 20, 10, 20, 0));
  });
}

TEST(CumSum, AddsUpAlongADim) {
  DTensor x(floats({1, 2, 3, 4, 5, 6}, {2, 3}));
  x.set_requires_grad(true);
  EXPECT_THAT(piece(cumsum(x, 0)), ElementsAre(1, 2, 3, 5, 7, 9));
  const DTensor y = cumsum(x, -1);
  EXPECT_THAT(piece(y), ElementsAre(1, 3, 6, 4, 9, 15));
  sum(y).backward();
  EXPECT_THAT(piece(x.grad()), ElementsAre(3, 2, 1, 3, 2, 1));
  const DTensor numbers(ids({7, -8, 9}, {3}));
  EXPECT_THAT(integers(cumsum(numbers, 0)), ElementsAre(7, -1, 8));
  EXPECT_EQ(cumsum(DTensor(counted({0, 3})), 0).shape(), (Shape{0, 3}));
}

}  // namespace
}  // namespace dtensor
