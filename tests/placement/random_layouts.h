// Layouts for tests that try many: all of a mesh, or random ones. Draws are one per statement, so
// that every compiler makes them in the same order.

#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "dtensor/placement/layout.h"

namespace dtensor::test {

// 0 to n - 1.
inline int draw(std::mt19937& random, int n) {
  return static_cast<int>(random() % static_cast<unsigned>(n));
}

inline const std::vector<MeshLayout>& small_meshes() {
  static const std::vector<MeshLayout> all = {
      MeshLayout({{"a", 2}, {"b", 2}, {"c", 2}}),
      MeshLayout({{"a", 2}, {"b", 3}, {"c", 2, {2, 1}}}),
      MeshLayout({{"a", 3, {1, 0, 2}}, {"b", 1}, {"c", 2}}),
      MeshLayout({{"a", 2}, {"b", 1}, {"c", 2}, {"d", 2}, {"e", 1}, {"f", 2}}, {})};
  return all;
}

inline const std::vector<Shape>& small_shapes() {
  static const std::vector<Shape> all = {{},     {1},       {5},          {13},
                                         {7, 4}, {4, 1, 6}, {3, 2, 2, 3}, {0, 4}};
  return all;
}

// Random placements, shard order and units.
inline Layout random_layout(const MeshLayout& mesh, const Shape& shape, std::mt19937& random,
                            PartialOp op = PartialOp::kSum) {
  std::vector<int> order(static_cast<size_t>(mesh.ndim()));
  std::iota(order.begin(), order.end(), 0);
  for (int i = mesh.ndim() - 1; i > 0; --i) {
    const int j = draw(random, i + 1);
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(j)]);
  }
  Layout layout = Layout::replicated(mesh, shape);
  for (const int m : order) {
    const int choice = draw(random, shape.ndim() + 3);
    if (choice < shape.ndim()) {
      const int64_t unit = draw(random, 3) + 1;
      layout = layout.with(m, Shard(choice), unit);
    } else if (choice == shape.ndim()) {
      layout = layout.with(m, Partial(op));
    }
  }
  return layout;
}

// A mesh of one to three dims on some of the first `world` ranks, in any order, at times with
// weights.
inline MeshLayout random_mesh(int world, std::mt19937& random) {
  std::vector<int> ranks(static_cast<size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  for (int i = world - 1; i > 0; --i) {
    const int j = draw(random, i + 1);
    std::swap(ranks[static_cast<size_t>(i)], ranks[static_cast<size_t>(j)]);
  }
  std::vector<MeshDim> dims;
  int size = 1;
  const int ndim = draw(random, 3) + 1;
  for (int m = 0; m < ndim; ++m) {
    const int n = draw(random, std::min(world / size, 4)) + 1;
    dims.push_back({std::string(1, static_cast<char>('a' + m)), n});
    size *= n;
  }
  if (draw(random, 4) == 0) {
    for (int i = 0; i < dims[0].size; ++i) {
      const int64_t weight = draw(random, 3);
      dims[0].weights.push_back(i == 0 ? weight + 1 : weight);
    }
  }
  ranks.resize(static_cast<size_t>(size));
  if (draw(random, 2) == 0) std::ranges::sort(ranks);
  return MeshLayout(dims, ranks);
}

// Every layout of a tensor on a mesh: R, S(d), P(op) on each mesh dim, all shard orders.
inline std::vector<Layout> all_layouts(const MeshLayout& mesh, const Shape& shape,
                                       PartialOp op = PartialOp::kSum) {
  std::vector<int> order(static_cast<size_t>(mesh.ndim()));
  std::iota(order.begin(), order.end(), 0);
  std::vector<Placement> choices{Replicate(), Partial(op)};
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

}  // namespace dtensor::test
