// Tally: checks plans against the simulator and counts those that sent more than the least.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "dtensor/tests/placement/plan_simulator.h"
#include "dtensor/tests/placement/random_layouts.h"

namespace dtensor::test {

struct Tally {
  int64_t plans = 0;
  int64_t above_minimum = 0;
  double worst = 1;
  std::string worst_of = "the least";
  // Of pairs in which one mesh dim is resolved and another becomes Partial from a cut.
  double worst_exchanged = 1;
  int64_t of_one_dim = 0;            // pairs that differ on one mesh dim alone
  int64_t above_one_and_a_half = 0;  // from one mesh to another with a Partial, above 1.5 times

  void check(const Layout& from, const Layout& to, uint64_t seed) {
    const std::string wrong = check_plan(from, to, seed);
    if (!wrong.empty()) {
      ADD_FAILURE() << wrong << " seed " << seed;
      return;
    }
    const ReshardPlan made = plan(from, to);
    ++plans;
    const int64_t least = least_by_counting(from, to);
    const bool between = !(from.mesh() == to.mesh());
    const double ratio = least == 0
                             ? (made.payload() == 0 ? 1 : HUGE_VAL)
                             : static_cast<double>(made.payload()) / static_cast<double>(least);
    if (between && from.spec().has_partial()) above_one_and_a_half += ratio > 1.5 ? 1 : 0;
    // Without a Partial the least is one direct exchange: each rank gets what it lacks.
    if (!from.spec().has_partial() && (between || !to.spec().has_partial())) {
      EXPECT_EQ(made.payload(), least)
          << to_string(from) << " -> " << to_string(to) << " " << to_string(from.shape());
    }
    if (differ_on_one_dim(from, to)) {
      ++of_one_dim;
      EXPECT_EQ(made.payload(), least)
          << to_string(from) << " -> " << to_string(to) << " " << to_string(from.shape());
    }
    if (made.payload() == least) return;
    ++above_minimum;
    if (exchanges_partial(from, to)) {
      worst_exchanged = std::max(worst_exchanged, ratio);
      return;
    }
    if (ratio <= worst) return;
    worst = ratio;
    worst_of = to_string(from) + " -> " + to_string(to) + " " + to_string(from.shape()) + " " +
               std::to_string(made.payload()) + " > " + std::to_string(least);
  }

  // Is there a mesh dim without which both are one layout? It alone changes its placement, its unit
  // or its place in the shard order.
  static bool differ_on_one_dim(const Layout& from, const Layout& to) {
    if (!(from.mesh() == to.mesh()) || from == to) return false;
    for (int m = 0; m < from.mesh().ndim(); ++m) {
      if (from.with(m, Replicate()) == to.with(m, Replicate())) return true;
    }
    return false;
  }

  static bool exchanges_partial(const Layout& from, const Layout& to) {
    if (!(from.mesh() == to.mesh())) return false;
    bool resolves = false;
    bool makes = false;
    for (int m = 0; m < from.mesh().ndim(); ++m) {
      const Placement a = from.placement(m);
      const Placement b = to.placement(m);
      resolves |= a.is_partial() && !b.is_partial();
      makes |= a.is_shard() && b.is_partial();
    }
    return resolves && makes;
  }

  void check_pairs(const std::vector<Layout>& layouts) {
    for (const Layout& from : layouts) {
      for (const Layout& to : layouts) check(from, to, 1);
    }
  }

  // On meshes of `ndim` dims (3 or 6), with units, weights and every reduction.
  void check_samples(int ndim, unsigned seed, int samples) {
    std::vector<MeshLayout> meshes;
    for (const MeshLayout& mesh : small_meshes()) {
      if (mesh.ndim() == ndim) meshes.push_back(mesh);
    }
    std::mt19937 random(seed);
    for (int i = 0; i < samples; ++i) {
      const auto& shapes = small_shapes();
      const auto& mesh = meshes[static_cast<size_t>(draw(random, static_cast<int>(meshes.size())))];
      const Shape& shape = shapes[static_cast<size_t>(draw(random, 8))];
      const auto op = static_cast<PartialOp>(draw(random, 4));
      const Layout from = random_layout(mesh, shape, random, op);
      const Layout to = random_layout(mesh, shape, random, op);
      check(from, to, static_cast<uint64_t>(i));
    }
  }

  // From one mesh of up to 8 ranks to another of the same root.
  void check_samples_between_meshes(unsigned seed, int samples) {
    std::mt19937 random(seed);
    for (int i = 0; i < samples; ++i) {
      const MeshLayout a = random_mesh(8, random);
      const MeshLayout b = random_mesh(8, random);
      const Shape& shape = small_shapes()[static_cast<size_t>(draw(random, 8))];
      const auto op = static_cast<PartialOp>(draw(random, 4));
      const Layout from = random_layout(a, shape, random, op);
      const Layout to = random_layout(b, shape, random, op);
      check(from, to, static_cast<uint64_t>(i));
    }
  }

  void print(const char* what) const {
    std::printf(
        "%s: %ld plans, %ld above the least payload, at worst %s; %.2f where P and S change "
        "places; of one mesh dim %ld; with a Partial to another mesh %ld above 1.5\n",
        what, static_cast<long>(plans), static_cast<long>(above_minimum), worst_of.c_str(),
        worst_exchanged, static_cast<long>(of_one_dim), static_cast<long>(above_one_and_a_half));
  }
};

}  // namespace dtensor::test
