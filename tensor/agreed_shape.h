// The global shape of pieces that every rank has one of, by an exchange of their sizes.

#pragma once

#include <span>

#include "dtensor/base/call_site.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor::internal {

// A collective of the mesh, entered as `from_local`. Each tensor dim is as long as the pieces along
// the mesh dims that cut it are together. ArgumentError, the same on every rank: outside the mesh,
// other dtypes or numbers of dims, or pieces that are not what the cut rule gives each rank.
Shape agreed_shape(const DTensor& piece, const DeviceMesh& mesh,
                   std::span<const Placement> placements, CallSite site);

}  // namespace dtensor::internal
