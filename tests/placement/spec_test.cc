#include "dtensor/placement/spec.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/base/context.h"

namespace dtensor {
namespace {

const MeshLayout& mesh22() {
  static const MeshLayout mesh({{"dp", 2}, {"tp", 2}});
  return mesh;
}

Spec spec(const MeshLayout& mesh, int ndim, std::vector<Placement> placements) {
  return Spec(mesh, ndim, placements);
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const PlacementError& e) {
    return e.what();
  }
  return "no PlacementError";
}

TEST(Spec, TakesMeshDimsLeftToRight) {
  const Spec s = spec(mesh22(), 2, {Shard(-1), Shard(1)});
  EXPECT_EQ(s.placement(0), Shard(1));
  ASSERT_EQ(s.levels(1).size(), 2U);
  EXPECT_EQ(s.levels(1)[0], (Level{0, 1}));
  EXPECT_EQ(s.levels(1)[1], (Level{1, 1}));
  EXPECT_TRUE(s.levels(0).empty());
  EXPECT_EQ(s.level(1)->mesh_dim, 1);
  EXPECT_FALSE(s.is_replicated());
  EXPECT_EQ(to_string(s), "[dp:S(1), tp:S(1)]");
  EXPECT_TRUE(spec(mesh22(), 2, {}).is_replicated());
  EXPECT_EQ(spec(mesh22(), 2, {Partial()}).placement(1), Replicate());
}

TEST(Spec, EqualOnesOfAContextAreOneObject) {
  Context context;
  const ContextScope bound(context);
  const Spec a = spec(mesh22(), 2, {Shard(0), Replicate()});
  const Spec b = spec(MeshLayout({{"dp", 2}, {"tp", 2}}), 2, {Shard(-2)});
  EXPECT_EQ(a.id(), b.id());
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.with(1, Shard(0)).with(1, Replicate()).id(), a.id());
  EXPECT_NE(a.with(1, Shard(0)).id(), a.id());
  EXPECT_EQ(Spec().id(), spec(MeshLayout(), 0, {}).id());
}

TEST(Spec, EqualOnesOfTwoContextsAreEqual) {
  const Spec here = spec(mesh22(), 2, {Shard(0), Partial()});
  std::thread([&] {
    const Spec there = spec(MeshLayout({{"dp", 2}, {"tp", 2}}), 2, {Shard(0), Partial()});
    EXPECT_NE(there.id(), here.id());
    EXPECT_EQ(there, here);
    EXPECT_EQ(there.hash(), here.hash());
    EXPECT_FALSE(there.with(0, Replicate()) == here);
  }).join();
}

TEST(Spec, TableForgetsSpecsThatNobodyHolds) {
  Context context;
  const ContextScope bound(context);
  const Spec kept = spec(MeshLayout({{"x", 1}}), 1, {Shard(0)});
  for (int n = 2; n < 2000; ++n) spec(MeshLayout({{"x", n}}), 1, {Shard(0)});
  EXPECT_EQ(kept.id(), spec(MeshLayout({{"x", 1}}), 1, {Shard(0)}).id());
}

TEST(Spec, WithKeepsOtherLevelsAndAppendsNewOnesLast) {
  const Spec tp_first = spec(mesh22(), 1, {Replicate(), Shard(0)}).with(0, Shard(0));
  EXPECT_EQ(to_string(tp_first), "[dp:S(0), tp:S(0)];order=0:tp,dp");
  EXPECT_FALSE(tp_first == spec(mesh22(), 1, {Shard(0), Shard(0)}));
  EXPECT_EQ(tp_first.with(0, Shard(0)), tp_first);
  EXPECT_EQ(tp_first.with(0, Shard(0), 1), tp_first);
  const Spec unit = tp_first.with(1, Shard(0), 12);
  EXPECT_EQ(to_string(unit), "[dp:S(0), tp:S(0)];unit=0:tp:12");
  EXPECT_EQ(unit.with(1, Shard(0)), unit);  // not given: the level stays
  EXPECT_EQ(unit.with(0, Replicate()).level(1)->unit, 12);
  EXPECT_EQ(unit.with(1, Shard(0), 1), spec(mesh22(), 1, {Shard(0), Shard(0)}));
}

TEST(Spec, WithSeveralDimsAtOnceIsNotStoppedByWhatLiesBetween) {
  const Spec sums = spec(mesh22(), 1, {Partial(), Partial()});
  const std::vector<int> both = {0, 1};
  const std::vector<Placement> maxima = {Partial(PartialOp::kMax), Partial(PartialOp::kMax)};
  EXPECT_EQ(sums.with(both, maxima), spec(mesh22(), 1, maxima));
  const std::vector<int> backwards = {1, 0};
  const std::vector<Placement> cut = {Shard(0), Shard(-1)};
  EXPECT_EQ(to_string(sums.with(backwards, cut)), "[dp:S(0), tp:S(0)];order=0:tp,dp");
  const std::vector<int> twice = {1, 1};
  EXPECT_THROW(sums.with(twice, cut), PlacementError);
  EXPECT_THROW(sums.with(both, std::vector<Placement>{Shard(0)}), ArgumentError);
}

TEST(Spec, FromLevelsStatesOrderUnitsAndPartials) {
  const std::vector<std::vector<Level>> levels = {{{1, 4}}, {}};
  const std::vector<Placement> placements = {Partial(), Shard(0)};
  const Spec s = Spec::from_levels(mesh22(), levels, placements);
  EXPECT_EQ(to_string(s), "[dp:P(sum), tp:S(0)];unit=0:tp:4");
  EXPECT_EQ(s.partial_op(), PartialOp::kSum);
  const std::vector<std::vector<Level>> twice = {{{1, 1}}, {{1, 1}}};
  EXPECT_NE(error_of([&] { Spec::from_levels(mesh22(), twice, {}); }).find("\"tp\" is used twice"),
            std::string::npos);
  const std::vector<Placement> both = {Replicate(), Partial()};
  EXPECT_NE(error_of([&] { Spec::from_levels(mesh22(), levels, both); }).find("used twice"),
            std::string::npos);
  const std::vector<Placement> no_level = {Shard(1)};
  EXPECT_THROW(Spec::from_levels(mesh22(), levels, no_level), PlacementError);
  const std::vector<std::vector<Level>> unit0 = {{{1, 0}}};
  EXPECT_THROW(Spec::from_levels(mesh22(), unit0, {}), ArgumentError);
  const std::vector<std::vector<Level>> outside = {{{2, 1}}};
  EXPECT_THROW(Spec::from_levels(mesh22(), outside, {}), ArgumentError);
}

// pytorch#169361
TEST(Spec, RefusesShardOfAScalarAndOfADimThatIsNotThere) {
  const std::string scalar = error_of([] { spec(mesh22(), 0, {Shard(0)}); });
  EXPECT_NE(scalar.find("Shard(0) of a tensor with 0 dims"), std::string::npos) << scalar;
  for (const int dim : {2, -3, 70000}) {
    const std::string text = error_of([&] { spec(mesh22(), 2, {Shard(dim)}); });
    EXPECT_NE(text.find("Shard(" + std::to_string(dim) + ") of a tensor with 2 dims"),
              std::string::npos)
        << text;
    EXPECT_THROW(spec(mesh22(), 2, {}).with(0, Shard(dim)), PlacementError);
  }
  EXPECT_EQ(to_string(spec(mesh22(), 2, {Shard(-1)}).placement(0)), "S(1)");
}

// pytorch#172041
TEST(Spec, RefusesTwoReductionsInOneTensor) {
  const auto two = error_of([] { spec(mesh22(), 1, {Partial(), Partial(PartialOp::kMax)}); });
  EXPECT_NE(two.find("P(sum) and P(max)"), std::string::npos) << two;
  EXPECT_THROW(spec(mesh22(), 1, {Partial()}).with(1, Partial(PartialOp::kProd)), PlacementError);
  EXPECT_THROW(spec(mesh22(), 1, {Replicate(), Replicate(), Replicate()}), PlacementError);
}

}  // namespace
}  // namespace dtensor
