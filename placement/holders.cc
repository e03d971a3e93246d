#include "dtensor/placement/holders.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace dtensor {
namespace {

bool contains(const Range& outer, const Range& inner) {
  return outer.begin <= inner.begin && inner.end <= outer.end;
}

// The coordinates, on the mesh dims that cut one tensor dim, whose part contains a target.
class Search {
 public:
  Search(const MeshLayout& mesh, std::span<const Level> levels, Range target)
      : mesh_(mesh), levels_(levels), target_(target) {}

  // Adds to `found` each of `from` with the coordinates filled in. An empty target is at the edge
  // of several parts, of which only the empty ones equal it.
  void run(size_t depth, Range part, Coordinate at, std::vector<Coordinate>& found) const {
    if (depth == levels_.size()) {
      if (!target_.empty() || part == target_) found.push_back(at);
      return;
    }
    const Level& level = levels_[depth];
    const auto part_of = [&](int c) {
      return cut(part, c, mesh_.size(level.mesh_dim), level.unit, mesh_.weights(level.mesh_dim));
    };
    // Parts begin and end in ascending order: those that contain the target are neighbours.
    int first = 0;
    for (int count = mesh_.size(level.mesh_dim); count > 0;) {
      const int half = count / 2;
      if (part_of(first + half).end < target_.end) {
        first += half + 1;
        count -= half + 1;
      } else {
        count = half;
      }
    }
    for (int c = first; c < mesh_.size(level.mesh_dim); ++c) {
      const Range inner = part_of(c);
      if (!contains(inner, target_)) break;
      at[level.mesh_dim] = c;
      run(depth + 1, inner, at, found);
    }
  }

 private:
  const MeshLayout& mesh_;
  std::span<const Level> levels_;
  Range target_;
};

// Every pair of one of `outer` and one of `found`, which has values on the mesh dims of `levels`.
std::vector<Coordinate> paired(const std::vector<Coordinate>& outer,
                               const std::vector<Coordinate>& found,
                               std::span<const Level> levels) {
  std::vector<Coordinate> all;
  all.reserve(outer.size() * found.size());
  for (const Coordinate& o : outer) {
    for (const Coordinate& f : found) {
      Coordinate& at = all.emplace_back(o);
      for (const Level& level : levels) at[level.mesh_dim] = f[level.mesh_dim];
    }
  }
  return all;
}

// The ranks whose part of every dim contains its target; see Search.
std::vector<int> ranks_with(const Layout& layout, std::span<const Range> targets) {
  const MeshLayout& mesh = layout.mesh();
  Coordinate origin;
  origin.ndim = mesh.ndim();
  std::vector<Coordinate> all = {origin};
  for (int d = 0; d < layout.ndim(); ++d) {
    const auto levels = layout.spec().levels(d);
    std::vector<Coordinate> found;
    Search(mesh, levels, targets[static_cast<size_t>(d)])
        .run(0, {0, layout.shape()[d]}, origin, found);
    all = paired(all, found, levels);
  }
  for (int m = 0; m < mesh.ndim(); ++m) {
    if (layout.placement(m).is_shard()) continue;
    std::vector<Coordinate> every(static_cast<size_t>(mesh.size(m)), origin);
    for (int c = 0; c < mesh.size(m); ++c) every[static_cast<size_t>(c)][m] = c;
    const Level level{m};
    all = paired(all, every, {&level, 1});
  }
  std::ranges::sort(all, {}, &Coordinate::at);  // row-major
  std::vector<int> ranks;
  ranks.reserve(all.size());
  for (const Coordinate& at : all) ranks.push_back(mesh.rank_at(at));
  return ranks;
}

}  // namespace

std::vector<int> holders(const Layout& layout, const Shape& index) {
  bool inside = index.ndim() == layout.ndim();
  for (int d = 0; inside && d < index.ndim(); ++d) {
    inside = index[d] >= 0 && index[d] < layout.shape()[d];
  }
  if (!inside) {
    throw ArgumentError(fmt::format("holders: a tensor of shape {} has no element {}",
                                    to_string(layout.shape()), to_string(index)));
  }
  std::vector<Range> targets;
  targets.reserve(static_cast<size_t>(index.ndim()));
  for (const int64_t i : index) targets.push_back({i, i + 1});
  return ranks_with(layout, targets);
}

std::vector<int> replicas(const Layout& layout, int rank) {
  const Box box = layout.box_of(rank);
  std::vector<Range> targets;
  targets.reserve(static_cast<size_t>(layout.ndim()));
  for (int d = 0; d < box.offset.ndim(); ++d) {
    targets.push_back({box.offset[d], box.offset[d] + box.size[d]});
  }
  return ranks_with(layout, targets);
}

}  // namespace dtensor
