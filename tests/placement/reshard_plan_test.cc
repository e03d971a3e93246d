// Every pair of placements, against simulated holders: exhaustively on small meshes, by samples on
// larger ones and between meshes. A small part of reshard_all_test, which sanitizers run too.

#include "dtensor/placement/reshard_plan.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "dtensor/tests/placement/plan_tally.h"
#include "dtensor/tests/placement/random_layouts.h"
#include "dtensor/tests/support/sanitized.h"

namespace dtensor {
namespace {

using test::all_layouts;
using test::Tally;

constexpr int kSamples = testing::kSanitized ? 500 : 4000;

TEST(ReshardPlan, MovesEveryPairOn1dMeshes) {
  Tally tally;
  for (const int n : {1, 2, 3, 4}) {
    const MeshLayout mesh({{"x", n}});
    for (const Shape& shape : std::vector<Shape>{
             {}, {0}, {1}, {2}, {3}, {5}, {8}, {4, 3}, {5, 0}, {1, 7}, {2, 3, 2}, {3, 1, 5}}) {
      tally.check_pairs(all_layouts(mesh, shape));
    }
  }
  tally.print("1-D");
  EXPECT_EQ(tally.above_minimum, 0);
}

TEST(ReshardPlan, MovesEveryPairOn2dMeshesInEveryOrder) {
  Tally tally;
  for (const auto& mesh :
       {MeshLayout({{"a", 2}, {"b", 2}}), MeshLayout({{"a", 2}, {"b", 3}}),
        MeshLayout({{"a", 1}, {"b", 4}}), MeshLayout({{"a", 2}, {"b", 2}}, {3, 1, 0, 2})}) {
    for (const Shape& shape : std::vector<Shape>{{}, {1}, {2}, {5}, {7}, {5, 4}, {3, 2}, {0, 3}}) {
      tally.check_pairs(all_layouts(mesh, shape));
    }
  }
  tally.print("2-D");
  EXPECT_LE(tally.worst, 1.2);
  EXPECT_LE(tally.worst_exchanged, 2);
}

// An S -> P(max) or R -> P(prod) has other identities, and other ranks that keep the value.
TEST(ReshardPlan, MovesEveryPairOfEveryReduction) {
  Tally tally;
  const MeshLayout mesh({{"a", 2}, {"b", 3}});
  for (const PartialOp op : {PartialOp::kMin, PartialOp::kMax, PartialOp::kProd}) {
    for (const Shape& shape : std::vector<Shape>{{}, {4}, {3, 2}}) {
      tally.check_pairs(all_layouts(mesh, shape, op));
    }
  }
  tally.print("min, max, prod");
  EXPECT_LE(tally.worst, 1.5);
  EXPECT_LE(tally.worst_exchanged, 2);
}

// Is a mesh dim in `middle` as it is in both others, where these agree?
bool keeps_what_stays(const Layout& from, const Layout& to, const Layout& middle) {
  for (int m = 0; m < from.mesh().ndim(); ++m) {
    const Placement p = from.placement(m);
    if (p == to.placement(m) && !p.is_shard() && p != middle.placement(m)) return false;
  }
  return true;
}

// The search is exact: no way round by another layout sends less, by whatever number of them (each
// part of the way is a plan too), that leaves alone the mesh dims that are R or P before and after.
TEST(ReshardPlan, NoWayRoundByAnotherLayoutSendsLess) {
  for (const auto& mesh : {MeshLayout({{"a", 2}, {"b", 2}}), MeshLayout({{"a", 2}, {"b", 3}})}) {
    for (const Shape& shape : std::vector<Shape>{{5}, {4, 6}, {5, 4}, {3, 2}}) {
      const std::vector<Layout> layouts = all_layouts(mesh, shape);
      const size_t n = layouts.size();
      std::vector<int64_t> payload(n * n);
      for (size_t i = 0; i < n; ++i) {
        for (size_t j = 0; j < n; ++j) payload[i * n + j] = plan(layouts[i], layouts[j]).payload();
      }
      for (size_t i = 0; i < n; ++i) {
        for (size_t j = 0; j < n; ++j) {
          for (size_t k = 0; k < n; ++k) {
            if (!keeps_what_stays(layouts[i], layouts[j], layouts[k])) continue;
            EXPECT_LE(payload[i * n + j], payload[i * n + k] + payload[k * n + j])
                << to_string(layouts[i]) << " -> " << to_string(layouts[j]) << " by "
                << to_string(layouts[k]) << " " << to_string(shape);
          }
        }
      }
    }
  }
}

TEST(ReshardPlan, MovesRandomPairsOn3dAnd6dMeshesWithUnitsAndWeights) {
  Tally tally;
  tally.check_samples(3, 20240, kSamples);
  tally.check_samples(6, 20241, kSamples / 4);
  tally.print("random");
  EXPECT_LE(tally.worst, 1.6);
  EXPECT_LE(tally.worst_exchanged, 2);
}

TEST(ReshardPlan, MovesRandomPairsBetweenMeshes) {
  Tally tally;
  tally.check_samples_between_meshes(71, kSamples);
  tally.print("between meshes");
  EXPECT_LE(tally.worst, 2);
}

constexpr int64_t kFar = (int64_t{1} << 62) - 1;

// What ranks hold may be more than 2^63 in all; only what is sent must fit.
TEST(ReshardPlan, CountsTensorsNear2To62) {
  const auto made = [](const char* from, const char* to, int64_t n = kFar) {
    return plan(parse_layout(from, {n}), parse_layout(to, {n}));
  };
  for (const int64_t n : {kFar, kFar + 1}) {
    for (const char* to : {"x=4:S(0)", "x=4:P(sum)", "x=4:P(max)", "x=2@0-1:R", "x=2@1-2:S(0)",
                           "a=2,b=2:R,P(sum)", "a=2,b=2:S(0),R"}) {
      EXPECT_EQ(made("x=4:R", to, n).payload(), 0) << to;
    }
    EXPECT_EQ(made("x=2:S(0)", "x=2:P(sum)", n).payload(), 0);
    // Every rank gets what it lacks.
    EXPECT_EQ(made("x=2:S(0)", "x=2:R", n).payload(), n);
    EXPECT_EQ(made("x=2@0-1:S(0)", "x=2@2-3:S(0)", n).payload(), n);
    EXPECT_EQ(made("x=4@0-3:R", "x=2@4-5:S(0)", n).payload(), n);
    EXPECT_EQ(made("x=2:P(sum)", "x=2:S(0)", n).payload(), n);
    // Of the halves that are reduced a third and a sixth stay.
    const int64_t crossing = made("x=2@0-1:P(sum)", "x=3@0-2:S(0)", n).payload() - n;
    EXPECT_LE(std::abs(crossing - n / 2), 1);
  }
  EXPECT_EQ(made("x=2:P(sum)", "x=2:R", kFar / 2).payload(), 2 * (kFar / 2));
  // Four ranks lack three quarters each, and more: not in 64 bits.
  for (const char* from : {"x=4:S(0)", "x=4:P(sum)"}) {
    try {
      made(from, "x=4:R");
      ADD_FAILURE() << from;
    } catch (const ArgumentError& e) {
      EXPECT_NE(std::string(e.what()).find("64 bits"), std::string::npos) << e.what();
    }
  }
  EXPECT_THROW(made("x=4@0-3:R", "x=4@4-7:R"), ArgumentError);
}

}  // namespace
}  // namespace dtensor
