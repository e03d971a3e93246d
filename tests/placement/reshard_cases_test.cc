// What plans of named moves look like: their steps, groups and bytes.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtensor/placement/reshard_plan.h"
#include "dtensor/tests/placement/plan_simulator.h"

namespace dtensor {
namespace {

constexpr int64_t kFloatBytes = 4;

ReshardPlan plan_of(const std::string& from, const std::string& to, const Shape& shape) {
  const Layout a = parse_layout(from, shape);
  const Layout b = parse_layout(to, shape);
  EXPECT_EQ(test::check_plan(a, b, 3), "");
  return plan(a, b);
}

// "all_gather a,b; local": kinds and groups.
std::string steps(const ReshardPlan& plan) {
  std::string text;
  for (const ReshardStep& step : plan.steps()) {
    text += text.empty() ? "" : "; ";
    text += name_of(step.kind);
    for (size_t i = 0; i < step.mesh_dims.size(); ++i) {
      text += (i == 0 ? " " : ",") + plan.from().mesh().name(step.mesh_dims[i]);
    }
  }
  return text;
}
std::string steps(const std::string& from, const std::string& to, const Shape& shape) {
  return steps(plan_of("a=2,b=2:" + from, "a=2,b=2:" + to, shape));
}

std::vector<int64_t> received(const ReshardPlan& plan) {
  std::vector<int64_t> all;
  for (const RankTraffic& rank : plan.traffic()) all.push_back(rank.received);
  return all;
}

TEST(ReshardCases, PatternsAreOneCollective) {
  EXPECT_EQ(steps("S(0),R", "R,R", {6, 5}), "all_gather a");
  EXPECT_EQ(steps("S(0),S(0)", "R,R", {6, 5}), "all_gather a,b");
  EXPECT_EQ(steps("S(1),S(0)", "R,R", {6, 5}), "all_gather b,a");  // in the tensor's order
  EXPECT_EQ(steps("S(0),S(0);order=0:b,a", "R,S(0)", {6, 5}), "all_gather a");
  EXPECT_EQ(steps("P(sum),P(sum)", "R,R", {6, 5}), "all_reduce a,b");
  EXPECT_EQ(steps("P(sum),P(sum)", "R,P(sum)", {6, 5}), "all_reduce a");
  EXPECT_EQ(steps("P(sum),R", "S(0),R", {6, 5}), "reduce_scatter a");
  EXPECT_EQ(steps("P(max),P(max)", "S(0),S(0)", {6, 5}), "reduce_scatter a,b");
  EXPECT_EQ(steps("P(sum),P(sum)", "S(0),R", {6, 5}), "reduce_scatter a,b; all_gather b");
  EXPECT_EQ(steps("S(0),R", "S(1),R", {6, 5}), "all_to_all a");
  EXPECT_EQ(steps("S(0),S(0)", "S(1),S(1)", {6, 5}), "all_to_all a,b");
  EXPECT_EQ(steps("S(0),S(0)", "S(0),S(0);order=0:b,a", {6, 5}), "exchange a,b");
  EXPECT_EQ(steps("S(0),R", "S(0),R;unit=0:a:4", {6, 5}), "exchange a");
}

TEST(ReshardCases, LocalMovesSendNothing) {
  for (const char* to :
       {"S(0),R", "R,S(1)", "S(0),S(1)", "S(0),S(0)", "P(sum),R", "P(prod),P(prod)"}) {
    EXPECT_EQ(steps("R,R", to, {5, 3}), "local") << to;
  }
  EXPECT_EQ(steps("S(0),R", "P(sum),R", {5, 3}), "local");
  EXPECT_EQ(steps("S(0),S(1)", "P(sum),S(1)", {5, 3}), "local");
  EXPECT_EQ(steps("P(sum),R", "P(sum),S(0)", {5, 3}), "local");
}

TEST(ReshardCases, NothingIsDoneWhereNothingChanges) {
  EXPECT_EQ(steps("S(0),R", "S(0),R", {5}), "");
  EXPECT_EQ(steps("S(0),R;unit=0:a:2", "S(0),R", {8}), "");  // equal boundaries
  EXPECT_EQ(steps("R,R", "P(max),R", {5}), "");              // the value is its own maximum
  EXPECT_EQ(steps("P(sum),R", "P(sum),R", {5}), "");
}

TEST(ReshardCases, ResolvesBeforeGathersAndAfterSlices) {
  EXPECT_EQ(steps("P(sum),S(0)", "R,R", {6, 5}), "all_reduce a; all_gather b");
  EXPECT_EQ(steps("P(sum),R", "R,S(1)", {6, 5}), "local; all_reduce a");
  EXPECT_EQ(steps("P(sum),R", "S(0),S(1)", {6, 5}), "reduce_scatter a");  // of what is wanted
  EXPECT_EQ(steps("S(0),R", "R,S(1)", {6, 5}), "local; all_gather a");
}

// pytorch#169381 hyper-parallel#428
TEST(ReshardCases, MeshDimsOfSizeOneMakeNoStep) {
  const std::vector<std::string> all = {"R", "S(0)", "S(1)", "P(sum)", "P(prod)"};
  for (const std::string& one : all) {
    for (const std::string& other : all) {
      if (one[0] == 'P' && other[0] == 'P' && one != other) continue;
      const auto plan =
          plan_of("a=1,b=1,c=1,d=1:R,R," + one, "a=1,b=1,c=1,d=1:R,R," + other, {3, 2});
      EXPECT_TRUE(plan.steps().empty()) << one << " " << other;
      const auto beside =
          plan_of("a=2,b=1,c=2,d=1:S(0)," + one, "a=2,b=1,c=2,d=1:S(0)," + other, {3, 2});
      EXPECT_TRUE(beside.steps().empty()) << one << " " << other;
    }
  }
}

// pytorch#103306 pytorch#194457
TEST(ReshardCases, GathersSendWhatIsLackingWithoutPadding) {
  EXPECT_EQ(plan_of("x=4:S(0)", "x=4:R", {5, 10}).payload() * kFloatBytes, 600);
  EXPECT_EQ(plan_of("a=2,b=2:S(0),S(0)", "a=2,b=2:R,R", {5, 3}).payload() * kFloatBytes, 180);
}

// pytorch#194457 autoparallel#462 pytorch#131210
TEST(ReshardCases, MovesSendTheLeastBytes) {
  const auto there = plan_of("a=2,b=2:S(0),S(0)", "a=2,b=2:R,S(0)", {5});
  EXPECT_EQ(received(there), (std::vector<int64_t>{1, 2, 3, 1}));
  EXPECT_EQ(there.payload() * kFloatBytes, 28);
  EXPECT_EQ(there.most_received(), 3);
  const auto back = plan_of("a=2,b=2:R,S(0)", "a=2,b=2:S(0),S(0)", {5});
  EXPECT_EQ(back.payload() * kFloatBytes, 8);
  const auto other = plan_of("a=2,b=2:R,S(0)", "a=2,b=2:S(0),S(0);order=0:b,a", {5});
  EXPECT_EQ(steps(other), "local");
  EXPECT_TRUE(other.is_free());
  const auto columns = plan_of("x=4:S(0)", "x=4:S(1)", {3, 5});
  EXPECT_EQ(received(columns), (std::vector<int64_t>{4, 2, 2, 3}));
  EXPECT_EQ(columns.payload() * kFloatBytes, 44);
  EXPECT_EQ(plan_of("a=2,b=2:S(1),S(1)", "a=2,b=2:S(1),S(2)", {2, 5, 3}).payload() * kFloatBytes,
            56);
}

// Each coordinate of a mesh dim that stays P holds other terms, and reduces them by itself. On
// (2,2) one rank wants an element, and the two terms lie at one coordinate of b: one send where the
// rank is at this coordinate, as of half of the 16 elements, else a second one.
TEST(ReshardCases, TheLeastIsOfEachCoordinateOfWhatStays) {
  for (const char* stays : {"P(sum)", "R"}) {
    const std::string c = std::string(",") + stays;
    const auto one = plan_of("a=2,b=2:P(sum),S(0)", "a=2,b=2:S(1),S(1)", {4, 4});
    const auto all = plan_of(("a=2,b=2,c=64:P(sum),S(0)" + c).c_str(),
                             ("a=2,b=2,c=64:S(1),S(1)" + c).c_str(), {4, 4});
    EXPECT_EQ(one.payload_minimum(), 24);
    EXPECT_EQ(all.payload_minimum(), 64 * 24);
  }
}

// pytorch#179502: what an error quotes for two fixes of a [12,8] cut by columns on four ranks.
TEST(ReshardCases, TellsWhatTheBusiestRankReceives) {
  const auto rows = plan_of("x=4:S(1)", "x=4:S(0)", {12, 8});
  EXPECT_EQ(rows.payload() * kFloatBytes, 288);
  EXPECT_EQ(rows.most_received() * kFloatBytes, 72);
  const auto all = plan_of("x=4:S(1)", "x=4:R", {12, 8});
  EXPECT_EQ(all.payload() * kFloatBytes, 1152);
  EXPECT_EQ(all.most_received() * kFloatBytes, 288);
}

// vllm#11797: 36 and 24 elements become 30 and 30.
TEST(ReshardCases, NewUnitsMoveOnlyTheDifference) {
  const auto plan = plan_of("x=2:S(1);unit=1:x:12", "x=2:S(1)", {1, 60});
  EXPECT_EQ(plan.payload() * kFloatBytes, 24);
  EXPECT_EQ(plan.messages(), (std::vector<BoxMove>{{0, 1, {{0, 30}, {1, 6}}}}));
}

// pytorch#166598
TEST(ReshardCases, AnOperandMeetsTheOtherOrderFreely) {
  EXPECT_TRUE(plan_of("a=2,b=2:R,S(0)", "a=2,b=2:S(0),S(0);order=0:b,a", {5}).is_free());
  EXPECT_EQ(plan_of("a=2,b=2:R,S(0)", "a=2,b=2:S(0),S(0)", {5}).payload() * kFloatBytes, 8);
}

TEST(ReshardCases, MessagesAreSortedMovesFromOwnerToReceiver) {
  const auto plan = plan_of("a=2,b=2@3,1,0,2:S(0),R", "a=2,b=2@3,1,0,2:R,R", {3});
  const std::vector<BoxMove> want = {
      {0, 3, {{2}, {1}}}, {1, 2, {{0}, {2}}}, {2, 1, {{2}, {1}}}, {3, 0, {{0}, {2}}}};
  EXPECT_EQ(plan.messages(), want);
}

TEST(ReshardCases, AReplicaTakesFromTheNearestHolder) {
  // Rows are held twice; each copy of a row serves the receivers of its own column of ranks.
  const auto plan = plan_of("a=2,b=2:S(0),R", "a=2,b=2:R,R", {4});
  for (const BoxMove& move : plan.messages()) EXPECT_EQ(move.src % 2, move.dst % 2);
  for (const RankTraffic& rank : plan.traffic()) EXPECT_EQ(rank.sent, 2);
}

// pytorch#110898 pytorch#168133 pytorch#172041 pytorch#172042
TEST(ReshardCases, ToPartialKeepsTheValueOnce) {
  for (const auto op : {PartialOp::kSum, PartialOp::kProd, PartialOp::kMin, PartialOp::kMax}) {
    const MeshLayout mesh({{"a", 2}, {"b", 2}});
    const Layout r = Layout::replicated(mesh, {2});
    const Layout p(mesh, {2}, {Partial(op), Partial(op)});
    const ReshardPlan there = plan(r, p);
    EXPECT_TRUE(there.is_free());
    const bool fills = op == PartialOp::kSum || op == PartialOp::kProd;
    EXPECT_EQ(there.steps().size(), fills ? 1U : 0U);
    for (int rank = 0; fills && rank < 4; ++rank) {
      const RankStep mine = there.rank_step(0, mesh.coordinate_at(rank));
      EXPECT_EQ(mine.fill_identity, rank != 0);
      EXPECT_EQ(mine.keep.empty(), rank != 0);
    }
    EXPECT_EQ(test::check_plan(r, p, 1), "");
    EXPECT_EQ(test::check_plan(p, r, 1), "");
  }
}

// pytorch#103306
TEST(ReshardCases, NothingButDataEntersMaxAndProd) {
  const auto locals = [](std::vector<std::vector<int64_t>> all) {
    test::Locals by_rank;
    for (size_t r = 0; r < all.size(); ++r) by_rank[static_cast<int>(r)] = all[r];
    return by_rank;
  };
  const auto moved = [](const char* from, const char* to, int64_t n, const test::Locals& in) {
    return test::run(plan(parse_layout(from, {n}), parse_layout(to, {n})), in);
  };
  const auto most = locals(
      {{-9, -2, -7, -4, -6}, {-3, -8, -5, -9, -7}, {-4, -6, -1, -8, -9}, {-5, -7, -9, -3, -2}});
  const std::vector<int64_t> max{-3, -2, -1, -3, -2};
  EXPECT_EQ(moved("x=4:P(max)", "x=4:R", 5, most), locals({max, max, max, max}));
  EXPECT_EQ(moved("x=4:P(max)", "x=4:S(0)", 5, most), locals({{-3, -2}, {-1}, {-3}, {-2}}));
  const auto factors = locals({{2, 3, 1}, {1, 5, 1}, {7, 1, 1}, {1, 1, 3}});
  const std::vector<int64_t> product{14, 15, 3};
  EXPECT_EQ(moved("x=4:P(prod)", "x=4:R", 3, factors),
            locals({product, product, product, product}));
  EXPECT_EQ(moved("x=4:P(prod)", "x=4:S(0)", 3, factors), locals({{14}, {15}, {3}, {}}));
}

// numpy#21218 pytorch#110898: a sum's identity fills what another rank holds, and moves nothing.
TEST(ReshardCases, ToPartialBesideAMoveOnlyCoordinate0TakesPart) {
  const auto gather = plan_of("a=2,b=3:S(0),R", "a=2,b=3:R,P(sum)", {6});
  EXPECT_EQ(steps(gather), "all_gather a; local");
  EXPECT_EQ(gather.payload(), 6);  // at b = 0 alone
  EXPECT_EQ(gather.payload(), gather.payload_minimum());
  EXPECT_FALSE(gather.rank_step(0, 1).takes_part());
  EXPECT_FALSE(gather.rank_step(0, 1).holds_after);
  EXPECT_TRUE(group_of(gather.steps()[0], 1).empty());
  EXPECT_TRUE(gather.rank_step(1, 1).fill_identity);
  EXPECT_TRUE(gather.rank_step(1, 1).keep.empty());
  EXPECT_FALSE(gather.rank_step(1, 0).fill_identity);
  EXPECT_EQ(gather.traffic(1), RankTraffic{});
  // Minima and maxima are kept everywhere.
  EXPECT_EQ(plan_of("a=2,b=3:S(0),R", "a=2,b=3:R,P(max)", {6}).payload(), 18);
}

// S -> P beside another move: every term takes what the ranks at its coordinate hold.
TEST(ReshardCases, TermsTakeWhatTheirCoordinateHolds) {
  EXPECT_EQ(steps("S(0),R", "P(sum),S(0)", {5}), "local");
  EXPECT_TRUE(plan_of("a=2,b=2:S(0),R", "a=2,b=2:P(sum),S(1)", {4, 6}).is_free());
  const auto made = plan_of("a=2,b=2:S(0),S(1)", "a=2,b=2:P(max),S(0)", {4, 6});
  EXPECT_EQ(steps(made), "exchange b");
  EXPECT_EQ(made.payload(), made.payload_minimum());
  ASSERT_EQ(made.steps()[0].op, PartialOp::kMax);
  const RankStep mine = made.rank_step(0, 0);  // rows 0 and 1 of both: of a = 0 these are all
  EXPECT_EQ(mine.keep, (std::vector<Box>{{{0, 0}, {2, 3}}}));
  EXPECT_EQ(mine.receive, (std::vector<RankPiece>{{1, {{0, 3}, {2, 3}}, 1}}));
  EXPECT_FALSE(mine.fill_identity);
  EXPECT_TRUE(made.rank_step(0, 1).fill_identity);  // wants rows 2 and 3, which a = 1 holds
  EXPECT_TRUE(made.rank_step(0, 1).receive.empty());
}

// Where one rank of each group has it all.
TEST(ReshardCases, AGatherFromOneRankIsABroadcast) {
  EXPECT_EQ(steps(plan_of("x=4:S(0)", "x=4:R", {1, 6})), "broadcast x");
  EXPECT_EQ(steps(plan_of("x=4:S(0);unit=0:x:8", "x=4:R", {8})), "broadcast x");
  EXPECT_EQ(steps(plan_of("x=4:S(0)", "x=4:R", {2, 6})), "all_gather x");
  const auto weighted = plan_of("x=3:S(0);weights=x:0,2,1", "x=3:R;weights=x:0,2,1", {1});
  EXPECT_EQ(steps(weighted), "broadcast x");
  EXPECT_EQ(weighted.rank_step(0, 0).root, 1);
}

TEST(ReshardCases, ShardToPartialFillsWhatIsNotHeld) {
  const Layout s = parse_layout("x=2:S(0)", {3});
  const ReshardPlan there = plan(s, parse_layout("x=2:P(max)", {3}));
  ASSERT_EQ(steps(there), "local");
  EXPECT_EQ(there.steps()[0].op, PartialOp::kMax);
  const RankStep mine = there.rank_step(0, s.mesh().coordinate_at(1));
  EXPECT_TRUE(mine.fill_identity);
  EXPECT_EQ(mine.keep, (std::vector<Box>{{{2}, {1}}}));
  EXPECT_EQ(mine.want, (Box{{0}, {3}}));
}

TEST(ReshardCases, PartialToAnotherPartialIsAnError) {
  const auto error_of = [](const char* from, const char* to) -> std::string {
    try {
      plan(parse_layout(from, {2}), parse_layout(to, {2}));
    } catch (const PlacementError& e) {
      return e.what();
    }
    return "no PlacementError";
  };
  EXPECT_NE(error_of("x=2:P(sum)", "x=2:P(max)").find("P(sum) cannot become P(max)"),
            std::string::npos);
  EXPECT_NE(error_of("x=2:P(min)", "x=2:P(sum)").find("Replicate()"), std::string::npos);
  EXPECT_NE(error_of("x=1:P(min)", "x=1:P(sum)").find("P(min)"), std::string::npos);
  EXPECT_NE(error_of("x=2:P(min)", "y=2:P(sum)").find("the mesh \"y=2\""), std::string::npos);
  EXPECT_THROW(plan(parse_layout("x=2:R", {2}), parse_layout("x=2:R", {3})), PlacementError);
  // Another op on another mesh dim is two moves, and legal.
  EXPECT_EQ(steps("P(sum),R", "R,P(prod)", {4}), "all_reduce a; local");
}

}  // namespace
}  // namespace dtensor
