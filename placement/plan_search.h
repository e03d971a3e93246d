// The search for a path on one mesh.

#pragma once

#include "dtensor/placement/plan_path.h"
#include "dtensor/placement/topology.h"

namespace dtensor::internal {

// The path from one layout to another of the same mesh that sends least; of equal ones that with
// the fewest collectives. With a model the one that takes the least time, collectives over several
// mesh dims split where that is faster. Neither layout does anything on mesh dims of size 1; the
// builder is at coordinate 0 of `at_zero_dims(from, to)`.
Path find_path(const PathBuilder& builder, const Layout& from, const Layout& to,
               const CostModel* model);

}  // namespace dtensor::internal
