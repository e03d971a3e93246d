#include "dtensor/ops/embedding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dtensor/comm/comm_error.h"
#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/error_of.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// torchtitan#4637: the padding id is global, also where rows are cut: row 4 is rank 2's second and
// gets no gradient, and no other row loses its own.
TEST(Embedding, TheRowOfThePaddingIdGetsNoGradient) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 4}});
    const DTensor list = replicate(DTensor(ids({4, 0, 5, 4, 2, 1}, {6})), mesh);
    for (const Placement p : {Shard(0), Shard(1), Replicate()}) {
      const DTensor table = leaf(floats({10, 11, 12, 13, 14, 15}, {6, 1}), mesh, {p});
      const DTensor y = embedding(table, list, {.padding_id = 4});
      EXPECT_THAT(whole(y), ElementsAre(14, 10, 15, 14, 12, 11));
      sum(y).backward();
      EXPECT_THAT(whole(table.grad()), ElementsAre(1, 1, 1, 0, 0, 1));
      EXPECT_THROW(embedding(table, list, {.padding_id = 6}), ArgumentError);
    }
  });
}

TEST(Embedding, LooksUpGlobalIdsInACutTable) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 4}});
    const DTensor table = leaf(floats({10, 11, 12, 13, 14, 15}, {6, 1}), mesh, {Shard(0)});
    const DTensor y = embedding(table, replicate(DTensor(ids({4, 0, 5, 4, 2}, {5})), mesh));
    EXPECT_EQ(y.spec().placement(0), Partial());
    EXPECT_THAT(whole(y), ElementsAre(14, 10, 15, 14, 12));
    sum(y).backward();
    EXPECT_EQ(table.grad().spec().placement(0), Shard(0));
    EXPECT_THAT(whole(table.grad()), ElementsAre(1, 0, 1, 0, 2, 1));
  });
}

TEST(Embedding, OfCutIdsHasAPartialGradient) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const DTensor table = leaf(floats({10, 11, 12}, {3, 1}), mesh, {Replicate()});
    const DTensor y = embedding(table, distribute(ids({2, 0, 2}, {3}), mesh, {Shard(0)}));
    EXPECT_THAT(whole(y), ElementsAre(12, 10, 12));
    sum(y).backward();
    EXPECT_THAT(piece(table.grad()), ElementsAre(1, 0, 2));
  });
}

TEST(Embedding, RefusesIdsOutsideTheTable) {
  const DTensor table(counted({3, 2}));
  EXPECT_THROW(embedding(table, DTensor(ids({3}, {1}))), ArgumentError);
  EXPECT_THROW(embedding(table, DTensor(ids({-1}, {1}))), ArgumentError);
  EXPECT_THROW(embedding(table, DTensor(counted({1}))), ArgumentError);
}

// Only the rank that holds the id knows; the others, in their next collective, are told what and
// where, and none waits. Where every rank has the id all throw alike, and the Comm lives on.
TEST(Embedding, AnIdThatOneRankHoldsEndsTheOthersWithItsError) {
  for (const int wrong : {0, 2}) {
    run_ranks(3, [wrong](comm::Comm& comm) {
      const DeviceMesh mesh(comm, {{"dp", 3}});
      const DTensor table = leaf(floats({10, 11, 12}, {3, 1}), mesh, {Replicate()});
      EXPECT_THROW(embedding(table, replicate(DTensor(ids({0, 7}, {2})), mesh)), ArgumentError);
      EXPECT_EQ(sum(table).item(), 33.0);
      std::vector<int64_t> list(3, 1);
      list[static_cast<size_t>(wrong)] = 7;
      const DTensor cut =
          distribute(Tensor::of(std::span<const int64_t>(list), {3}), mesh, {Shard(0)});
      const auto use = [&] { return sum(embedding(table, cut)).item(); };
      if (comm.rank() == wrong) {
        EXPECT_THAT(error_of<ArgumentError>(use), HasSubstr("embedding has 7 at [0]"));
        return;
      }
      try {
        use();
        FAIL() << "went on";
      } catch (const comm::CommError& e) {
        EXPECT_EQ(e.fields().kind, comm::CommErrorKind::kAborted) << e.what();
        EXPECT_EQ(e.fields().culprit, wrong);
        EXPECT_THAT(e.what(), HasSubstr("rank " + std::to_string(wrong) + ": embedding has 7 at"));
      }
    });
  }
}

}  // namespace
}  // namespace dtensor
