// The path from a layout on one mesh to a layout on another.

#pragma once

#include "dtensor/placement/plan_path.h"
#include "dtensor/placement/topology.h"

namespace dtensor::internal {

// Neither layout does anything on mesh dims of size 1. Resolves what is Partial on the mesh of
// `from`, in the way that sends least in all or, where a model is given, takes the least time;
// sends what each rank lacks; fills what becomes Partial. Goes once through the ranks that lie in
// both meshes for every way to resolve.
Path path_between_meshes(const Layout& from, const Layout& to, const CostModel* model = nullptr,
                         int64_t* visited = nullptr);

}  // namespace dtensor::internal
