// New placements, same value. The argument is not changed; a redistribute to equal boundaries
// returns it, with no graph node and no message. Backward changes the gradient's representation
// only: on the mesh dims that moved it goes straight to the source's placement, on the others a
// P(sum) gradient passes. Every rank of the mesh makes the call.
// PlacementError: P(a) to P(b), another mesh; ArgumentError: another shape.

#pragma once

#include <initializer_list>
#include <span>

#include "dtensor/base/call_site.h"
#include "dtensor/tensor/dtensor.h"
#include "dtensor/tensor/move.h"

namespace dtensor {

// Placements by mesh dim; missing ones at the end are R. A mesh dim whose placement is the same
// keeps its level; a new Shard is appended last, with unit 1.
[[nodiscard]] DTensor redistribute(const DTensor& t, std::span<const Placement> placements,
                                   CallSite site = CallSite::here());
[[nodiscard]] DTensor redistribute(const DTensor& t, std::initializer_list<Placement> placements,
                                   CallSite site = CallSite::here());
// Only the dims of the slice change.
[[nodiscard]] DTensor redistribute(const DTensor& t, const MeshSlice& dims,
                                   std::initializer_list<Placement> placements,
                                   CallSite site = CallSite::here());
[[nodiscard]] DTensor redistribute(const DTensor& t, const Layout& to,
                                   CallSite site = CallSite::here());
// For libraries above: `op` and `cause` are who asked, for the ledger; what backward sends is
// entered as the adjoint of `op`.
[[nodiscard]] DTensor redistribute(const DTensor& t, const Layout& to, const MoveOptions& options);

// A whole tensor's handle onto a mesh, R on every dim: every rank has the same value. No message
// and no copy. Its gradient comes back R. A tensor that lies on this mesh is returned as it is;
// PlacementError for one on another.
DTensor replicate(const DTensor& t, const DeviceMesh& mesh);

}  // namespace dtensor
