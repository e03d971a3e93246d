// Plans on large meshes look at parts of cuts, not at ranks. Counts, no times.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/placement/least_payload.h"
#include "dtensor/placement/reshard_plan.h"
#include "dtensor/placement/reshard_step.h"
#include "dtensor/placement/tiling.h"

namespace dtensor {
namespace {

struct Work {
  int64_t planned = 0;  // parts looked at to plan
  int64_t mine = 0;     // and for one rank's part of all steps
  int64_t pieces = 0;   // that it sends and receives
};

// On a mesh of n x n ranks.
Work work(const std::string& from, const std::string& to, const Shape& shape, int n = 256) {
  const std::string mesh = fmt::format("a={0},b={0}:", n);
  const ReshardPlan made = plan(parse_layout(mesh + from, shape), parse_layout(mesh + to, shape));
  Work work;
  work.planned = made.visited();
  for (const ReshardStep& step : made.steps()) {
    const RankStep mine = rank_step(step, n * n / 3, &work.mine);
    work.pieces += static_cast<int64_t>(mine.send.size() + mine.receive.size());
  }
  return work;
}

TEST(ReshardScale, EvenPartsArePlannedWithoutLookingAtAny) {
  const Shape shape{1 << 20, 1 << 18};
  for (const auto& [from, to] :
       std::vector<std::pair<const char*, const char*>>{{"S(0),R", "R,R"},
                                                        {"S(0),S(0)", "S(0),R"},
                                                        {"S(0),R", "S(1),R"},
                                                        {"P(sum),R", "S(0),R"},
                                                        {"P(sum),P(sum)", "R,R"},
                                                        {"R,R", "S(0),S(1)"},
                                                        {"S(0),R", "P(sum),R"}}) {
    EXPECT_EQ(work(from, to, shape).planned, 0) << from << " -> " << to;
  }
}

// pytorch#163548
TEST(ReshardScale, UnevenPartsAreLookedAtPerMeshDimAndNotPerRank) {
  const Shape shape{(1 << 20) + 77, (1 << 18) + 3};
  for (const auto& [from, to] :
       std::vector<std::pair<const char*, const char*>>{{"S(0),R", "R,R"},
                                                        {"S(0),R", "S(1),R"},
                                                        {"S(0),S(1)", "S(0),S(0)"},
                                                        {"S(0),S(0)", "S(0),S(0);order=0:b,a"},
                                                        {"S(0),R", "S(0),R;unit=0:a:7"},
                                                        {"S(0),S(1)", "S(1),S(0)"},
                                                        {"P(sum),S(0)", "S(0),R"},
                                                        {"S(0),S(1)", "P(sum),R"},
                                                        {"P(sum),R", "R,S(1)"}}) {
    const Work done = work(from, to, shape);
    // Twice the mesh dims are four times the ranks.
    EXPECT_LE(done.planned, 64 + work(from, to, shape, 128).planned * 5 / 2)
        << from << " -> " << to;
    // A search of 8 halvings per level and piece.
    EXPECT_LE(done.mine, 64 + 16 * done.pieces) << from << " -> " << to;
  }
}

TEST(ReshardScale, OneRankOfAnExchangeHasFewMessages) {
  const Work done = work("S(0),S(0)", "S(0),S(0);order=0:b,a", {(1 << 20) + 77}, 255);
  EXPECT_GT(done.pieces, 0);
  EXPECT_LT(done.pieces, 8);
}

TEST(ReshardScale, MessagesOfOneRankAreThoseOfAllThatNameIt) {
  for (const auto& [from, to] :
       std::vector<std::pair<const char*, const char*>>{{"a=2,b=3:S(0),S(1)", "a=2,b=3:S(1),R"},
                                                        {"a=2,b=3:P(sum),S(0)", "a=2,b=3:S(0),R"},
                                                        {"a=2,b=3:S(0),P(max)", "a=2,b=3:R,R"},
                                                        {"a=2,b=3:S(0),R", "x=4@3-6:S(1)"},
                                                        {"a=1,b=3:R,S(0)", "a=1,b=3:R,R"}}) {
    const ReshardPlan made = plan(parse_layout(from, {7, 5}), parse_layout(to, {7, 5}));
    const std::vector<BoxMove> all = made.messages();
    EXPECT_FALSE(all.empty());
    for (const int rank : made.ranks()) {
      std::vector<BoxMove> want;
      for (const BoxMove& move : all) {
        if (move.src == rank || move.dst == rank) want.push_back(move);
      }
      EXPECT_EQ(made.messages(rank, want.size()), want) << from << " -> " << to;
      if (!want.empty()) {
        EXPECT_FALSE(made.messages(rank, want.size() - 1));
      }
    }
    EXPECT_EQ(made.messages({}, all.size()), all);
    EXPECT_FALSE(made.messages({}, all.size() - 1));
  }
}

TEST(ReshardScale, TheLeastIsCountedWhereThatLooksAtFewBoxes) {
  const auto made = [](const char* from, const char* to, const Shape& shape) {
    return plan(parse_layout(from, shape), parse_layout(to, shape));
  };
  const Shape small{7, 5};
  const ReshardPlan few = made("a=2,b=3:P(sum),S(0)", "a=2,b=3:S(1),R", small);
  EXPECT_EQ(few.countable_minimum(), few.payload_minimum());
  // One box per rank where nothing is reduced, on one mesh and on two.
  const Shape large{100000, 3000};
  const ReshardPlan swapped = made("a=256,b=256:S(0),S(1)", "a=256,b=256:S(1),S(0)", large);
  EXPECT_EQ(swapped.countable_minimum(), swapped.payload());
  const ReshardPlan between = made("a=256,b=256:S(0),S(1)", "x=60000@5000-64999:S(0)", large);
  EXPECT_EQ(between.countable_minimum(), between.payload());
  // 65,536 ranks times the cells: one; 256 rows; 511 rows and 256 columns.
  const ReshardPlan whole = made("a=256,b=256:P(sum),P(sum)", "a=256,b=256:R,R", large);
  EXPECT_EQ(whole.countable_minimum(), int64_t{2} * 65535 * 300'000'000);
  EXPECT_EQ(least_payload_boxes(whole.from(), whole.to()), 65536);
  const ReshardPlan rows = made("a=256,b=256:P(sum),R", "a=256,b=256:S(0),R", large);
  EXPECT_EQ(least_payload_boxes(rows.from(), rows.to()), 256 * 256);  // b is left alone
  const ReshardPlan cells = made("a=256,b=256:P(sum),S(0)", "a=256,b=256:S(0),S(1)", large);
  EXPECT_EQ(least_payload_boxes(cells.from(), cells.to()), int64_t{65536} * 511 * 256);
  EXPECT_FALSE(cells.countable_minimum());
  // No more than the elements; more than 64 bits count.
  const ReshardPlan tiny = made("a=256,b=256:P(sum),S(0)", "a=256,b=256:S(0),S(1)", {3, 2});
  EXPECT_EQ(least_payload_boxes(tiny.from(), tiny.to()), 65536 * 6);
  const std::string mesh = "a=1024,b=4,c=4,d=4,e=4,f=4:";
  const Shape huge{1 << 10, 1 << 10, 1 << 10, 1 << 10, 1 << 10, 1 << 10};
  EXPECT_EQ(least_payload_boxes(parse_layout(mesh + "P(sum),S(0),S(1),S(2),S(3),S(4)", huge),
                                parse_layout(mesh + "S(5),S(4),S(3),S(2),S(1),S(0)", huge)),
            (int64_t{1} << 20) * 7 * 7 * 7 * 7 * 7 * 1024);
}

TEST(ReshardScale, OneRankBetweenMeshesLooksAtWhatMeetsIt) {
  const Shape shape{(1 << 20) + 77, 64};
  const Layout from = parse_layout("a=256,b=256:S(0),S(0)", shape);
  const Layout to = parse_layout("x=60000@5000-64999:S(0)", shape);
  const ReshardPlan made = plan(from, to);
  ASSERT_EQ(made.steps().size(), 1U);
  for (const int rank : {0, 4999, 5000, 40000, 64999, 65535}) {
    int64_t visited = 0;
    const RankStep mine = rank_step(made.steps()[0], rank, &visited);
    EXPECT_LT(visited, 100) << rank;
    EXPECT_EQ(mine.holds_after, rank >= 5000 && rank < 65000);
  }
}

// pytorch#149640 pytorch#163548
TEST(ReshardScale, ChunksOfFilesAreComparedAFewTimesEach) {
  const Shape shape{500, 800};
  Tiling from{shape, {}};
  for (int i = 0; i < 500; ++i) {
    for (int j = 0; j < 200; ++j) {
      from.tiles.push_back({{{i, int64_t{4} * j}, {1, 4}}, i * 200 + j});
    }
  }
  Tiling to = tiling_of(parse_layout("a=8,b=8:S(0),S(1)", shape));
  for (Tile& tile : to.tiles) tile.holder += 100'000;
  int64_t comparisons = 0;
  EXPECT_EQ(moves(from, to, &comparisons).size(), 100'000U);
  EXPECT_LT(comparisons, 60 * int64_t{100'000});
}

}  // namespace
}  // namespace dtensor
