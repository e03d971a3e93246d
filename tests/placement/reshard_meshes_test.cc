// Plans from one mesh to another: named moves. Samples are in reshard_plan_test.

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/placement/reshard_plan.h"
#include "dtensor/tests/placement/plan_simulator.h"
#include "dtensor/tests/placement/random_layouts.h"

namespace dtensor {
namespace {

ReshardPlan plan_of(const std::string& from, const std::string& to, const Shape& shape) {
  const Layout a = parse_layout(from, shape);
  const Layout b = parse_layout(to, shape);
  EXPECT_EQ(test::check_plan(a, b, 3), "");
  return plan(a, b);
}

std::string steps(const ReshardPlan& plan) {
  std::string text;
  for (const ReshardStep& step : plan.steps()) {
    text += (text.empty() ? "" : "; ") + std::string(name_of(step.kind));
    if (step.is_between_meshes()) text += " between";
  }
  return text;
}

// pytorch#180346
TEST(ReshardMeshes, ACutGoesStraightToAnotherCut) {
  const Shape shape{5};
  const auto made = plan_of("x=2:S(0)", "y=3@1-3:S(0)", shape);
  EXPECT_EQ(steps(made), "exchange between");
  EXPECT_EQ(made.payload() * 4, 20);
  EXPECT_EQ(made.payload_minimum(), 5);
  const std::vector<BoxMove> want = {
      {0, 1, {{0}, {2}}}, {0, 2, {{2}, {1}}}, {1, 2, {{3}, {1}}}, {1, 3, {{4}, {1}}}};
  EXPECT_EQ(made.messages(), want);
  EXPECT_EQ(made.ranks(), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(group_of(made.steps()[0], 2), (std::vector<int>{0, 1, 2, 3}));
  // Rank 0 has nothing after, 2 and 3 nothing before.
  for (int rank = 0; rank < 4; ++rank) {
    const RankStep mine = made.rank_step(0, rank);
    EXPECT_EQ(mine.me, rank);
    EXPECT_EQ(mine.holds_before, rank < 2);
    EXPECT_EQ(mine.holds_after, rank > 0);
  }
  EXPECT_EQ(made.rank_step(0, 1).send.size(), 2U);
  EXPECT_EQ(made.traffic(2), (RankTraffic{0, 2}));
  EXPECT_FALSE(made.rank_step(0, 7).takes_part());
}

TEST(ReshardMeshes, WhatARankHasIsNotSent) {
  EXPECT_EQ(steps(plan_of("x=4:S(0)", "a=2,b=2:S(0),S(0)", {7})), "");
  EXPECT_EQ(steps(plan_of("x=4:S(0)", "x=4@3,2,1,0:S(0)", {8})), "exchange between");
  EXPECT_EQ(plan_of("x=4:S(0)", "x=4@0,1,3,2:S(0)", {8}).payload(), 4);
  EXPECT_EQ(steps(plan_of("x=4:R", "x=2@1,3:S(0)", {6})), "local between");
  EXPECT_EQ(steps(plan_of("x=2:S(0)", "x=3@1-3:R", {4})), "exchange between");
  EXPECT_EQ(plan_of("x=2:S(0)", "x=3@1-3:R", {4}).payload(), 10);  // rank 1 has 2 of 12
}

TEST(ReshardMeshes, OneRankBroadcastsToAMesh) {
  const auto made = plan_of("x=1@2:R", "y=4:R", {6});
  EXPECT_EQ(steps(made), "broadcast between");
  EXPECT_EQ(made.payload(), 18);
  EXPECT_EQ(made.rank_step(0, 2).root, 2);
  EXPECT_EQ(made.rank_step(0, 2).send.size(), 3U);
  EXPECT_EQ(made.rank_step(0, 0).receive, (std::vector<RankPiece>{{2, {{0}, {6}}, 2}}));
  EXPECT_EQ(steps(plan_of("x=1@9:R", "y=4:R", {6})), "broadcast between");
  EXPECT_EQ(steps(plan_of("x=1@2:R", "y=4:S(0)", {6})), "exchange between");
}

TEST(ReshardMeshes, ReplicasShareTheSending) {
  const auto made = plan_of("x=2:R", "y=4@2-5:S(0)", {8});
  EXPECT_EQ(made.traffic(0).sent, 4);
  EXPECT_EQ(made.traffic(1).sent, 4);
}

TEST(ReshardMeshes, APartialIsResolvedOnItsOwnMesh) {
  const auto made = plan_of("x=2:P(sum)", "y=3@2-4:S(0)", {6});
  EXPECT_EQ(steps(made), "reduce_scatter; exchange between");
  EXPECT_EQ(made.payload(), 12);
  EXPECT_EQ(made.payload(), made.payload_minimum());
  // Of replicas one reduces, or each a part.
  EXPECT_EQ(plan_of("a=2,b=2:P(max),R", "y=2@4,5:S(0)", {8}).payload(), 16);
}

TEST(ReshardMeshes, ToPartialTheValueGoesToCoordinate0) {
  const auto made = plan_of("x=2:S(0)", "a=2,b=2@2-5:P(sum),R", {4});
  EXPECT_EQ(steps(made), "exchange between; local");
  EXPECT_EQ(made.payload(), 8);  // to 2 and 3; 4 and 5 fill in the identity
  EXPECT_EQ(made.traffic(4).received, 0);
  EXPECT_TRUE(made.rank_step(1, 4).fill_identity);
  EXPECT_FALSE(made.rank_step(1, 2).fill_identity);
  EXPECT_EQ(plan_of("x=2:S(0)", "a=2,b=2@2-5:P(max),R", {4}).payload(), 16);
  EXPECT_THROW(plan(parse_layout("x=2:P(sum)", {4}), parse_layout("y=2:P(max)", {4})),
               PlacementError);
  EXPECT_THROW(plan(parse_layout("x=2:R", {4}), parse_layout("y=2:R", {5})), PlacementError);
}

// Layouts and files are one computation.
// Whichever of the terms a rank has, their sum is the same.
TEST(ReshardMeshes, TermsOfTheSameRanksStayWhereTheyAre) {
  for (const auto& [from, to] : std::vector<std::pair<const char*, const char*>>{
           {"a=2:P(sum)", "b=2:P(sum)"},
           {"a=2:P(max)", "a=2@1,0:P(max)"},
           {"a=2,b=3:P(sum),P(sum)", "x=6@5,0,1,3,2,4:P(sum)"},
           {"a=2,b=1:P(sum),R", "x=2:P(sum)"}}) {
    const Layout before = parse_layout(from, {8});
    const Layout after = parse_layout(to, {8});
    EXPECT_EQ(plan(before, after).payload(), 0) << from << " -> " << to;
    EXPECT_EQ(plan(before, after).payload_minimum(), 0) << from << " -> " << to;
    EXPECT_EQ(test::check_plan(before, after, 3), "");
  }
  // Replicas of a term, or ranks without one, are not that.
  EXPECT_GT(plan(parse_layout("a=2,b=2:P(sum),R", {8}), parse_layout("x=4:P(sum)", {8})).payload(),
            0);
}

TEST(ReshardMeshes, MessagesAreTheMovesOfTheTilings) {
  std::mt19937 random(4);
  for (int i = 0; i < 1000; ++i) {
    const MeshLayout a = test::random_mesh(9, random);
    const MeshLayout b = test::random_mesh(9, random);
    const Shape& shape = test::small_shapes()[static_cast<size_t>(test::draw(random, 8))];
    const Layout from = test::random_layout(a, shape, random);
    const Layout to = test::random_layout(b, shape, random);
    if (from.spec().has_partial() || to.spec().has_partial() || a == b) continue;
    const ReshardPlan made = plan(from, to);
    if (!made.steps().empty() && made.steps()[0].kind == StepKind::kBroadcast) continue;
    std::vector<BoxMove> want;
    for (const BoxMove& move : moves(tiling_of(from), tiling_of(to))) {
      if (move.src != move.dst) want.push_back(move);
    }
    std::ranges::sort(want, [](const BoxMove& x, const BoxMove& y) {
      if (std::pair(x.src, x.dst) != std::pair(y.src, y.dst)) {
        return std::pair(x.src, x.dst) < std::pair(y.src, y.dst);
      }
      return std::ranges::lexicographical_compare(x.box.offset, y.box.offset);
    });
    EXPECT_EQ(made.messages(), want) << to_string(from) << " -> " << to_string(to);
  }
}

}  // namespace
}  // namespace dtensor
