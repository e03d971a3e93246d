// Tally: checks plans against the simulator and counts those that sent more than the least.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
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

  void check(const Layout& from, const Layout& to, uint64_t seed) {
    const std::string wrong = check_plan(from, to, seed);
    if (!wrong.empty()) {
      ADD_FAILURE() << wrong << " seed " << seed;
      return;
    }
    const ReshardPlan made = plan(from, to);
    ++plans;
    const int64_t least = least_by_counting(from, to);
    if (made.payload() == least) return;
    ++above_minimum;
    const double ratio = static_cast<double>(made.payload()) / static_cast<double>(least);
    if (exchanges_partial(from, to)) {
      worst_exchanged = std::max(worst_exchanged, ratio);
      return;
    }
    if (ratio <= worst) return;
    worst = ratio;
    worst_of = to_string(from) + " -> " + to_string(to) + " " + to_string(from.shape()) + " " +
               std::to_string(made.payload()) + " > " + std::to_string(least);
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

  // On 3-D and 6-D meshes, with units and weights.
  void check_samples(unsigned seed, int samples) {
    std::mt19937 random(seed);
    for (int i = 0; i < samples; ++i) {
      const auto& meshes = small_meshes();
      const auto& shapes = small_shapes();
      const MeshLayout& mesh = meshes[static_cast<size_t>(draw(random, 4))];
      const Shape& shape = shapes[static_cast<size_t>(draw(random, 8))];
      const Layout from = random_layout(mesh, shape, random);
      const Layout to = random_layout(mesh, shape, random);
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
        "places\n",
        what, static_cast<long>(plans), static_cast<long>(above_minimum), worst_of.c_str(),
        worst_exchanged);
  }
};

}  // namespace dtensor::test
