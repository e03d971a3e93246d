#include "dtensor/placement/holders.h"

#include <fmt/format.h>

#include <algorithm>

#include "dtensor/placement/overlap.h"

namespace dtensor {

std::vector<int> holders(const Layout& layout, const Shape& index) {
  bool inside = index.ndim() == layout.ndim();
  for (int d = 0; inside && d < index.ndim(); ++d) {
    inside = index[d] >= 0 && index[d] < layout.shape()[d];
  }
  if (!inside) {
    throw ArgumentError(fmt::format("holders: a tensor of shape {} has no element {}",
                                    to_string(layout.shape()), to_string(index)));
  }
  const MeshLayout& mesh = layout.mesh();
  Coordinate origin;
  origin.ndim = mesh.ndim();
  MeshDimSet all;
  for (int m = 0; m < mesh.ndim(); ++m) all.add(m);
  std::vector<Held> found = held_of(layout, {index, Shape::filled(index.ndim(), 1)}, origin, all);
  std::ranges::sort(found, {}, [](const Held& held) { return held.at.at; });  // row-major
  std::vector<int> ranks;
  ranks.reserve(found.size());
  for (const Held& held : found) ranks.push_back(mesh.rank_at(held.at));
  return ranks;
}

std::vector<int> replicas(const Layout& layout, int rank) {
  const MeshLayout& mesh = layout.mesh();
  const auto at = mesh.coordinate_of(rank);
  if (!at) {
    throw ArgumentError(
        fmt::format("replicas: rank {} is not in the mesh \"{}\"", rank, to_string(mesh)));
  }
  std::vector<int> copied_over;
  for (int m = 0; m < mesh.ndim(); ++m) {
    if (!layout.placement(m).is_shard()) copied_over.push_back(m);
  }
  return mesh.group(*at, copied_over);
}

}  // namespace dtensor
