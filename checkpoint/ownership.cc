#include "dtensor/checkpoint/ownership.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "dtensor/base/cut.h"
#include "dtensor/base/error.h"
#include "dtensor/base/philox.h"

namespace dtensor::checkpoint {

std::optional<Box> box_to_write(std::string_view name, DType dtype, const Layout& layout,
                                int rank) {
  if (layout.spec().has_partial()) {
    throw PlacementError(fmt::format(
        "checkpoint: tensor \"{}\" {} is {}: no rank has its value. Save redistribute(t, "
        "{{Replicate()}}) instead",
        name, to_string(layout.shape()), to_string(layout.spec())));
  }
  const MeshLayout& mesh = layout.mesh();
  if (!mesh.contains(rank)) return std::nullopt;
  const uint64_t hash = stream_of(name);
  if (layout.shape().numel() == 0) {
    const int writer = mesh.ranks()[hash % mesh.ranks().size()];
    return rank == writer ? std::optional(Box{Shape::filled(layout.ndim(), 0), layout.shape()})
                          : std::nullopt;
  }
  Box box = layout.box_of(rank);
  if (box.empty()) return std::nullopt;
  std::vector<int> copied_over;  // the mesh dims whose ranks hold the same box
  for (int m = 0; m < mesh.ndim(); ++m) {
    if (layout.placement(m).is_replicate()) copied_over.push_back(m);
  }
  const std::vector<int> replicas = mesh.group(*mesh.coordinate_of(rank), copied_over);
  const auto me = static_cast<int>(std::ranges::find(replicas, rank) - replicas.begin());
  const auto count = static_cast<int>(replicas.size());
  if (box.size.ndim() == 0 || box.numel() * size_of(dtype) < kSharedFromBytes) {
    return static_cast<uint64_t>(me) == hash % replicas.size() ? std::optional(box) : std::nullopt;
  }
  const Range mine = cut({box.offset[0], box.offset[0] + box.size[0]}, me, count);
  if (mine.empty()) return std::nullopt;
  box.offset[0] = mine.begin;
  box.size[0] = mine.size();
  return box;
}

}  // namespace dtensor::checkpoint
