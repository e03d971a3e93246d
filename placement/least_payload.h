// The least number of elements that have to be sent to bring a tensor from one layout to another.

#pragma once

#include <cstdint>

#include "dtensor/placement/layout.h"

namespace dtensor {

// Within the groups of the mesh dims that are resolved (P -> R or S), of n ranks each: an element
// that one of the group wants is reduced with n - 1 sends and handed on with one more for each
// further rank; an element that a group wants and does not hold comes with one send per rank, after
// it was reduced somewhere. Without P: one send for each element that a rank wants and lacks.
// Mesh dims that become Partial want the value at coordinate 0 only. One mesh, one shape.
int64_t least_payload(const Layout& from, const Layout& to);

// `to` before its mesh dims that become Partial do so: on these it is as `from`, cut last.
Layout before_partial(const Layout& from, const Layout& to);

}  // namespace dtensor
