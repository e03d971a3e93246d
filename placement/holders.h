// Who holds an element or a box of a Layout, told without a walk over the mesh: each level is
// searched for the part that has it, so that the cost is the size of the answer, a search per
// level, and the weights of a mesh dim that has some.

#pragma once

#include <vector>

#include "dtensor/placement/layout.h"

namespace dtensor {

// The ranks that hold an element, in the order of the mesh: one per coordinate of the mesh dims
// that do not cut. Of a Partial tensor these hold each a term; the value is the reduction over the
// coordinates of the Partial mesh dims. ArgumentError for an index outside the shape.
std::vector<int> holders(const Layout& layout, const Shape& index);

// The ranks that hold the part that `rank` holds, itself among them, in the order of the mesh:
// those that differ from it only on mesh dims that do not cut. Empty parts are parts like others:
// that of another coordinate is another one, wherever it begins. ArgumentError for a rank outside
// the mesh.
std::vector<int> replicas(const Layout& layout, int rank);

}  // namespace dtensor
