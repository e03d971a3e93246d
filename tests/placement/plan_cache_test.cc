#include "dtensor/placement/plan_cache.h"

#include <gtest/gtest.h>

namespace dtensor {
namespace {

TEST(PlanCache, MakesAPlanOnceAndKeepsWhatOneRankDoes) {
  PlanCache cache;
  const Layout from = parse_layout("x=2:S(0)", {5});
  const Layout to = parse_layout("x=2:R", {5});
  const auto first = cache.get(from, to, 1);
  EXPECT_EQ(first->plan.payload(), 5);
  ASSERT_EQ(first->mine.size(), 1U);
  EXPECT_EQ(first->mine[0].have, (Box{{3}, {2}}));
  // Equal layouts made anew are the same entry.
  EXPECT_EQ(cache.get(parse_layout("x=2:S(0)", {5}), parse_layout("x=2:R", {5}), 1), first);
  EXPECT_EQ(cache.made(), 1);
}

TEST(PlanCache, TellsShapesDirectionsAndRanksApart) {
  PlanCache cache;
  const Layout s5 = parse_layout("x=2:S(0)", {5});
  const Layout r5 = parse_layout("x=2:R", {5});
  EXPECT_EQ(cache.get(s5, r5, 0)->mine[0].have.size, (Shape{3}));
  EXPECT_EQ(cache.get(s5, r5, 1)->mine[0].have.size, (Shape{2}));
  EXPECT_EQ(cache.get(r5, s5, 0)->plan.payload(), 0);
  const Layout s6(s5.spec(), {6});
  const Layout r6(r5.spec(), {6});
  EXPECT_EQ(cache.get(s6, r6, 0)->plan.payload(), 6);
  EXPECT_EQ(cache.made(), 4);
}

TEST(PlanCache, KeepsNoErrorsAndDoesNotGrowWithoutBound) {
  PlanCache cache;
  const Layout sum = parse_layout("x=2:P(sum)", {5});
  const Layout max = parse_layout("x=2:P(max)", {5});
  EXPECT_THROW(cache.get(sum, max, 0), PlacementError);
  EXPECT_EQ(cache.size(), 0U);
  const Layout s = parse_layout("x=2:S(0)", {5});
  const Layout r = parse_layout("x=2:R", {5});
  for (int64_t n = 0; n < int64_t{PlanCache::kMostPlans} + 10; ++n) {
    cache.get(Layout(s.spec(), {n}), Layout(r.spec(), {n}), 0);
    EXPECT_LE(cache.size(), PlanCache::kMostPlans);
  }
}

}  // namespace
}  // namespace dtensor
