#include "dtensor/checkpoint/ownership.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "dtensor/base/cut.h"
#include "dtensor/base/error.h"
#include "dtensor/base/philox.h"
#include "dtensor/placement/holders.h"

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
  const std::vector<int> sharers = replicas(layout, rank);
  const auto me = static_cast<int>(std::ranges::find(sharers, rank) - sharers.begin());
  const auto count = static_cast<int>(sharers.size());
  if (box.size.ndim() == 0 || box.numel() * size_of(dtype) < kSharedFromBytes) {
    return static_cast<uint64_t>(me) == hash % sharers.size() ? std::optional(box) : std::nullopt;
  }
  const Range mine = cut({box.offset[0], box.offset[0] + box.size[0]}, me, count);
  if (mine.empty()) return std::nullopt;
  box.offset[0] = mine.begin;
  box.size[0] = mine.size();
  return box;
}

}  // namespace dtensor::checkpoint
