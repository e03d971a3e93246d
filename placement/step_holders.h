// Who takes part in a step, on one mesh: what reshard_step.cc and rank_step.cc share.

#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "dtensor/placement/reshard_step.h"

namespace dtensor::internal {

inline bool is_at(const std::vector<PinnedDim>& pinned, const std::optional<Coordinate>& at) {
  return at && std::ranges::all_of(pinned,
                                   [&](PinnedDim p) { return (*at)[p.mesh_dim] == p.coordinate; });
}

inline std::optional<Coordinate> holder_before(const ReshardStep& step, int rank) {
  auto at = step.from.mesh().coordinate_of(rank);
  if (!is_at(step.from_only, at)) at.reset();
  return at;
}

inline std::optional<Coordinate> holder_after(const ReshardStep& step, int rank) {
  auto at = step.to.mesh().coordinate_of(rank);
  if (!is_at(step.to_only, at)) at.reset();
  return at;
}

inline Box box_before_at(const ReshardStep& step, const Coordinate& at) {
  const bool clipped = step.within && step.kind != StepKind::kReduceScatter;
  return clipped ? intersect(step.from.box(at), step.within->box(at)) : step.from.box(at);
}

inline Box box_after_at(const ReshardStep& step, const Coordinate& at) {
  const bool clipped = step.within && step.kind == StepKind::kReduceScatter;
  return clipped ? intersect(step.to.box(at), step.within->box(at)) : step.to.box(at);
}

inline int64_t group_size(const ReshardStep& step) {
  if (step.is_between_meshes()) return static_cast<int64_t>(step.ranks->size());
  int64_t size = 1;
  for (const int m : step.mesh_dims) size *= step.from.mesh().size(m);
  return size;
}

inline int index_in_group(const ReshardStep& step, const Coordinate& at) {
  int index = 0;
  for (const int m : step.mesh_dims) index = index * step.from.mesh().size(m) + at[m];
  return index;
}

}  // namespace dtensor::internal
