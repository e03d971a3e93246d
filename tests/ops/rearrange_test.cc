#include "dtensor/ops/rearrange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "dtensor/ops/triangle.h"
#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Rearrange, PutsElementsWhereALoopDoes) {
  const DTensor x(counted({2, 3}));
  EXPECT_THAT(piece(repeat(x, Shape{1, 2})), ElementsAre(0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5));
  EXPECT_THAT(piece(repeat(DTensor(counted({2})), Shape{2, 2})),
              ElementsAre(0, 1, 0, 1, 0, 1, 0, 1));
  EXPECT_EQ(repeat(x, Shape{3, 0, 1}).shape(), (Shape{3, 0, 3}));
  EXPECT_THAT(piece(pad(x, 1, {.before = 1, .after = 2, .value = 9})),
              ElementsAre(9, 0, 1, 2, 9, 9, 9, 3, 4, 5, 9, 9));
  EXPECT_THAT(piece(roll(x, 1, 1)), ElementsAre(2, 0, 1, 5, 3, 4));
  EXPECT_THAT(piece(roll(x, -4, 1)), ElementsAre(1, 2, 0, 4, 5, 3));
  EXPECT_THAT(piece(flip(x, 0)), ElementsAre(3, 4, 5, 0, 1, 2));
  EXPECT_THAT(piece(diagonal(x)), ElementsAre(0, 4));
  EXPECT_THAT(piece(diagonal(x, {.offset = 1})), ElementsAre(1, 5));
  EXPECT_THAT(piece(diagonal(x, {.offset = -1})), ElementsAre(3));
  EXPECT_EQ(diagonal(x, {.offset = 7}).shape(), Shape{0});
  EXPECT_EQ(diagonal(x).local_tensor().storage(), x.local_tensor().storage());
  EXPECT_THROW(repeat(x, Shape{2}), ArgumentError);
  EXPECT_THROW(pad(x, 0, {.before = -1}), ArgumentError);
  EXPECT_THROW(pad(DTensor(ids({1}, {1})), 0, {.after = 1, .value = 0.5}), ArgumentError);
  EXPECT_THROW(diagonal(x, {.dim0 = 1, .dim1 = -1}), ArgumentError);
}

TEST(Rearrange, GivesMemoryOfItsOwn) {
  const DTensor x(counted({2, 3}));
  EXPECT_NE(repeat(x, Shape{1, 1}).local_tensor().storage(), x.local_tensor().storage());
  EXPECT_NE(roll(x, 0, 0).local_tensor().storage(), x.local_tensor().storage());
}

TEST(Rearrange, TakesTheEndsOfInt64) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  DTensor x(counted({2, 3}));
  EXPECT_THAT(piece(tril(x, kMost)), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(piece(tril(x, kLeast)), ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_THAT(piece(triu(x, kLeast)), ElementsAre(0, 1, 2, 3, 4, 5));
  x.set_requires_grad(true);
  // -2^63 is 1 more than a multiple of 3: two to the left are one to the right.
  const DTensor y = roll(x, kLeast, 1);
  EXPECT_THAT(piece(y), ElementsAre(2, 0, 1, 5, 3, 4));
  sum(mul(y, DTensor(counted({2, 3})))).backward();
  EXPECT_THAT(piece(x.grad()), ElementsAre(1, 2, 0, 4, 5, 3));
}

TEST(Triangle, IndicesOfCutRowsAndColumnsAreGlobal) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 3}});
    const Tensor ones = Tensor::full({4, 5}, 1.0);
    for (const int dim : {0, 1}) {
      for (const int64_t k : {-5, -1, 0, 2, 6}) {
        std::vector<float> lower;
        std::vector<float> upper;
        for (int64_t i = 0; i < 4; ++i) {
          for (int64_t j = 0; j < 5; ++j) {
            lower.push_back(j - i <= k ? 1.0F : 0.0F);
            upper.push_back(j - i >= k ? 1.0F : 0.0F);
          }
        }
        const DTensor x = distribute(ones, mesh, {Shard(dim)});
        EXPECT_EQ(whole(tril(x, k)), lower) << k;
        EXPECT_EQ(whole(triu(x, k)), upper) << k;
      }
    }
    EXPECT_THROW(tril(distribute(counted({3}), mesh, {})), ArgumentError);
  });
}

TEST(Pad, OfAPartialWithAValueIsRefused) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const DTensor p = partial({{1, 2}, {10, 20}}, {2}, mesh);
    EXPECT_THAT(whole(pad(p, 0, {.after = 1})), ElementsAre(11, 22, 0));
    EXPECT_THAT(placement_error([&] { pad(p, 0, {.after = 1, .value = 1.0}); }),
                HasSubstr("it is not linear in its Partial input"));
    EXPECT_THAT(placement_error([&] { roll(distribute(counted({4}), mesh, {Shard(0)}), 1, 0); }),
                HasSubstr("'a' may not be cut"));
  });
}

TEST(Rearrange, RepeatsElementsInARowInUnitsOfACut) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"d", 2}});
    const DTensor x = leaf(counted({3, 2}), mesh, {Shard(0)});  // rows 2,1
    const DTensor rows = repeat_interleave(x, 2, 0);
    EXPECT_EQ(rows.local_tensor().size(0), comm.rank() == 0 ? 4 : 2);
    EXPECT_EQ(moved_bytes(), 0);
    EXPECT_THAT(whole(rows), ElementsAre(0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5));
    EXPECT_THAT(whole(repeat_interleave(x, 2, 1)), ElementsAre(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5));
    sum(rows).backward();
    EXPECT_THAT(whole(x.grad()), ElementsAre(2, 2, 2, 2, 2, 2));
  });
  EXPECT_THROW(repeat_interleave(DTensor(counted({2})), -1, 0), ArgumentError);
}

}  // namespace
}  // namespace dtensor
