#include "dtensor/placement/reshard_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "dtensor/tests/placement/plan_simulator.h"

namespace dtensor {
namespace {

using test::check_plan;

constexpr int kSamples = 4000;

// How many plans sent more than the least; printed, and bounded by each test.
struct Tally {
  int64_t plans = 0;
  int64_t above_minimum = 0;
  double worst = 1;
  std::string worst_of;

  void check(const Layout& from, const Layout& to, uint64_t seed) {
    const std::string wrong = check_plan(from, to, seed);
    if (!wrong.empty()) {
      ADD_FAILURE() << wrong << " seed " << seed;
      return;
    }
    const ReshardPlan made = plan(from, to);
    ++plans;
    if (made.payload() == made.payload_minimum()) return;
    ++above_minimum;
    const double ratio =
        static_cast<double>(made.payload()) / static_cast<double>(made.payload_minimum());
    if (ratio <= worst) return;
    worst = ratio;
    worst_of = to_string(from) + " -> " + to_string(to) + " " + to_string(from.shape()) + " " +
               std::to_string(made.payload()) + " > " + std::to_string(made.payload_minimum());
  }
  void print(const char* what) const {
    printf("%s: %ld plans, %ld above the least payload, at worst %s\n", what,
           static_cast<long>(plans), static_cast<long>(above_minimum), worst_of.c_str());
  }
};

// Every layout of a tensor on a mesh: R, S(d), P(sum) on each mesh dim, all shard orders.
std::vector<Layout> all_layouts(const MeshLayout& mesh, const Shape& shape) {
  std::vector<int> order;
  for (int m = 0; m < mesh.ndim(); ++m) order.push_back(m);
  std::vector<Placement> choices{Replicate(), Partial()};
  for (int d = 0; d < shape.ndim(); ++d) choices.push_back(Shard(d));
  std::vector<Layout> all;
  do {
    std::vector<size_t> choice(order.size(), 0);
    while (true) {
      Layout layout = Layout::replicated(mesh, shape);
      for (const int m : order) layout = layout.with(m, choices[choice[static_cast<size_t>(m)]]);
      if (std::ranges::find(all, layout) == all.end()) all.push_back(layout);
      size_t i = 0;
      while (i < choice.size() && ++choice[i] == choices.size()) choice[i++] = 0;
      if (i == choice.size()) break;
    }
  } while (std::ranges::next_permutation(order).found);
  return all;
}

TEST(ReshardPlan, MovesEveryPairOn1dMeshes) {
  Tally tally;
  for (const int n : {1, 2, 3, 4}) {
    const MeshLayout mesh({{"x", n}});
    for (const Shape& shape : std::vector<Shape>{
             {}, {0}, {1}, {2}, {3}, {5}, {8}, {4, 3}, {5, 0}, {1, 7}, {2, 3, 2}, {3, 1, 5}}) {
      const auto layouts = all_layouts(mesh, shape);
      for (const Layout& from : layouts) {
        for (const Layout& to : layouts) tally.check(from, to, 1);
      }
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
      const auto layouts = all_layouts(mesh, shape);
      for (const Layout& from : layouts) {
        for (const Layout& to : layouts) tally.check(from, to, 2);
      }
    }
  }
  tally.print("2-D");
  EXPECT_LE(tally.worst, 1.2);
}

// A layout with random placements, shard order and units.
Layout random_layout(const MeshLayout& mesh, const Shape& shape, std::mt19937& random) {
  std::vector<int> order;
  for (int m = 0; m < mesh.ndim(); ++m) order.push_back(m);
  std::ranges::shuffle(order, random);
  Layout layout = Layout::replicated(mesh, shape);
  for (const int m : order) {
    const int choice = static_cast<int>(random() % static_cast<unsigned>(shape.ndim() + 3));
    if (choice < shape.ndim()) {
      layout = layout.with(m, Shard(choice), static_cast<int64_t>(random() % 3) + 1);
    } else if (choice == shape.ndim()) {
      layout = layout.with(m, Partial());
    }
  }
  return layout;
}

TEST(ReshardPlan, MovesRandomPairsOn3dAnd6dMeshesWithUnitsAndWeights) {
  const std::vector<MeshLayout> meshes = {
      MeshLayout({{"a", 2}, {"b", 2}, {"c", 2}}),
      MeshLayout({{"a", 2}, {"b", 3}, {"c", 2, {2, 1}}}),
      MeshLayout({{"a", 3, {1, 0, 2}}, {"b", 1}, {"c", 2}}),
      MeshLayout({{"a", 2}, {"b", 1}, {"c", 2}, {"d", 2}, {"e", 1}, {"f", 2}})};
  const std::vector<Shape> shapes = {{}, {5}, {13}, {7, 4}, {4, 1, 6}, {3, 2, 2, 3}, {0, 4}};
  Tally tally;
  std::mt19937 random(20240);
  for (int i = 0; i < kSamples; ++i) {
    const MeshLayout& mesh = meshes[random() % meshes.size()];
    const Shape& shape = shapes[random() % shapes.size()];
    const Layout from = random_layout(mesh, shape, random);
    const Layout to = random_layout(mesh, shape, random);
    tally.check(from, to, static_cast<uint64_t>(i));
  }
  tally.print("random");
  EXPECT_LE(tally.worst, 1.5);
}

// A mesh of one to three dims on some of the first `world` ranks, in any order.
MeshLayout random_mesh(int world, std::mt19937& random) {
  std::vector<int> ranks(static_cast<size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::ranges::shuffle(ranks, random);
  std::vector<MeshDim> dims;
  int size = 1;
  for (const unsigned left = random() % 3; dims.size() <= left;) {
    const int most = world / size;
    const int n = static_cast<int>(random() % static_cast<unsigned>(std::min(most, 4))) + 1;
    dims.push_back({std::string(1, static_cast<char>('a' + dims.size())), n});
    size *= n;
  }
  if (random() % 4 == 0) {
    std::vector<int64_t> weights;
    for (int i = 0; i < dims[0].size; ++i) weights.push_back(static_cast<int64_t>(random() % 3));
    weights[0] += 1;
    dims[0].weights = weights;
  }
  ranks.resize(static_cast<size_t>(size));
  if (random() % 2 == 0) std::ranges::sort(ranks);
  return MeshLayout(dims, ranks);
}

TEST(ReshardPlan, MovesRandomPairsBetweenMeshes) {
  const std::vector<Shape> shapes = {{}, {1}, {5}, {13}, {7, 4}, {4, 1, 6}, {3, 2, 2, 3}, {0, 4}};
  Tally tally;
  std::mt19937 random(71);
  for (int i = 0; i < kSamples; ++i) {
    const MeshLayout a = random_mesh(8, random);
    const MeshLayout b = random_mesh(8, random);
    const Shape& shape = shapes[random() % shapes.size()];
    const Layout from = random_layout(a, shape, random);
    const Layout to = random_layout(b, shape, random);
    tally.check(from, to, static_cast<uint64_t>(i));
  }
  tally.print("between meshes");
  EXPECT_LE(tally.worst, 2);
}

}  // namespace
}  // namespace dtensor
