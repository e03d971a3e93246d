// The search for a path on one mesh.

#pragma once

#include "dtensor/placement/plan_path.h"

namespace dtensor::internal {

// The path from one layout to another of the same mesh that sends least; of equal ones that with
// the fewest collectives. Neither does anything on mesh dims of size 1, and `to` has no Partial
// mesh dim that `from` does not have.
Path find_path(const PathBuilder& builder, const Layout& from, const Layout& to);

}  // namespace dtensor::internal
