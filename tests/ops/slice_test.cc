#include "dtensor/ops/slice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "dtensor/ops/automatic_copy.h"
#include "dtensor/ops/slice_layout.h"
#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Narrow, TakesADimThatIsNotCut) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const DTensor x = leaf(counted({3, 4}), mesh, {Shard(0)});
    const DTensor y = narrow(x, 1, 1, 2);
    EXPECT_EQ(y.local_tensor().storage(), x.local_tensor().storage());
    EXPECT_THAT(whole(y), ElementsAre(1, 2, 5, 6, 9, 10));
    sum(y).backward();
    EXPECT_THAT(whole(x.grad()), ElementsAre(0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0));
    EXPECT_THROW(narrow(x, 1, 3, 2), ArgumentError);
    EXPECT_THROW(narrow(x, 1, -1, 2), ArgumentError);
  });
}

TEST(Narrow, OfACutDimIsRefusedWithFixesWhereElementsWouldMove) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const DTensor x = distribute(counted({3, 4}), mesh, {Shard(0)});  // rows 2,1
    EXPECT_THAT(placement_error([&] { narrow(x, 0, 2, 1); }),
                AllOf(HasSubstr("narrow: a f32[3,4] is S(0)"), HasSubstr("dim 0 is cut"),
                      HasSubstr("redistribute(a, {Partial()}): 0 bytes per rank, gives P(sum)"),
                      HasSubstr("redistribute(a, {Shard(1)}): 16 bytes per rank, gives S(1)")));
    EXPECT_EQ(moved_bytes(), 0);
    const PolicyScope policy(RedistributePolicy::kAuto);
    const DTensor last = narrow(x, 0, 2, 1);
    EXPECT_THAT(whole(last), ElementsAre(8, 9, 10, 11));
    // What is written into it would not reach x, which the in-place ops ask about.
    EXPECT_EQ(ops::automatic_copy_for(last), "narrow");
    EXPECT_EQ(ops::automatic_copy_for(select(x, 0, 1)), "select");
    EXPECT_EQ(ops::automatic_copy_for(narrow(x, 1, 0, 2)), "");
    EXPECT_EQ(ops::automatic_copy_for(mul(last, 2.0)), "");
  });
}

// pytorch#139735: rows 0 and 1 of eight on four ranks are all of rank 0's piece.
TEST(Narrow, OfACutDimIsAViewWhereWhatRanksHoldAreThePartsOfACut) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 4}});
    const DTensor x = leaf(counted({8, 2}), mesh, {Shard(0)});
    const DTensor first = narrow(x, 0, 0, 2);
    EXPECT_EQ(first.local_tensor().size(0), comm.rank() == 0 ? 2 : 0);
    EXPECT_EQ(first.local_tensor().storage(), x.local_tensor().storage());
    EXPECT_THAT(whole(first), ElementsAre(0, 1, 2, 3));
    // Of the middle six rows the ranks hold 1,2,2,1, which no cut gives.
    EXPECT_NE(placement_error([&] { narrow(x, 0, 1, 6); }), "");
    sum(first).backward();
    EXPECT_THAT(whole(x.grad()), ElementsAre(1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
  });
}

// Every slice of short dims: what it gives is what a loop over the global array gives, or it is
// refused alike on all ranks; a layout that is given puts every element where it was.
TEST(SliceLayout, KeepsEveryElementOnItsRank) {
  const MeshLayout mesh({{"a", 3}});
  int legal = 0;
  for (int64_t n = 0; n <= 9; ++n) {
    for (const int64_t unit : {1, 2, 3}) {
      const Layout from = Layout::replicated(mesh, {n}).with(0, Shard(0), unit);
      for (int64_t begin = 0; begin <= n; ++begin) {
        for (const int64_t step : {1, 2, 3}) {
          for (int64_t length = 0; begin + (length - 1) * step < n; ++length) {
            const ops::Slice slice{0, begin, length, step};
            const auto found = ops::slice_layout(from, slice);
            if (!std::holds_alternative<Layout>(found)) continue;
            ++legal;
            const Layout& out = std::get<Layout>(found);
            ASSERT_EQ(out.shape(), Shape{length});
            for (int r = 0; r < 3; ++r) {
              const Range held = from.range(0, mesh.coordinate_at(r));
              const Range part = out.range(0, mesh.coordinate_at(r));
              for (int64_t i = 0; i < length; ++i) {
                const int64_t at = begin + i * step;
                ASSERT_EQ(at >= held.begin && at < held.end, i >= part.begin && i < part.end);
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(legal, 100);
}

TEST(Slice, TakesStepsAndBoundsAsPythonDoes) {
  const DTensor x(counted({7}));
  EXPECT_THAT(piece(slice(x, 0, {.begin = 1, .step = 2})), ElementsAre(1, 3, 5));
  EXPECT_THAT(piece(slice(x, 0, {.begin = -3})), ElementsAre(4, 5, 6));
  EXPECT_THAT(piece(slice(x, 0, {.end = -5})), ElementsAre(0, 1));
  EXPECT_THAT(piece(slice(x, 0, {.begin = 5, .end = 2})), IsEmpty());
  EXPECT_THAT(piece(slice(x, 0, {.begin = -100, .end = 100, .step = 5})), ElementsAre(0, 5));
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(piece(slice(x, 0, {.begin = 2, .step = kMost})), ElementsAre(2));
  EXPECT_THROW(narrow(x, 0, 1, kMost), ArgumentError);
  EXPECT_THROW(slice(x, 0, {.step = 0}), ArgumentError);
}

TEST(Slice, OfACutDimWithAStepKeepsItsElements) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const DTensor x = leaf(counted({8}), mesh, {Shard(0)});
    const DTensor y = slice(x, 0, {.begin = 1, .step = 2});
    EXPECT_EQ(y.spec().placement(0), Shard(0));
    EXPECT_EQ(y.local_tensor().storage(), x.local_tensor().storage());
    EXPECT_THAT(whole(y), ElementsAre(1, 3, 5, 7));
    sum(y).backward();
    EXPECT_THAT(whole(x.grad()), ElementsAre(0, 1, 0, 1, 0, 1, 0, 1));
    EXPECT_EQ(x.grad().spec().placement(0), Shard(0));
  });
}

TEST(Select, DropsADimThatIsNotCut) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const DTensor x = leaf(counted({3, 2}), mesh, {Shard(0)});
    const DTensor y = select(x, 1, -1);
    EXPECT_EQ(y.spec().placement(0), Shard(0));
    EXPECT_THAT(whole(y), ElementsAre(1, 3, 5));
    sum(y).backward();
    EXPECT_THAT(whole(x.grad()), ElementsAre(0, 1, 0, 1, 0, 1));
    EXPECT_THAT(placement_error([&] { select(x, 0, 0); }), HasSubstr("'a' may not be cut"));
    EXPECT_THROW(select(x, 1, 2), ArgumentError);
  });
}

}  // namespace
}  // namespace dtensor
