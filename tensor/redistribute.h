// New placements, same value. The argument is not changed; a redistribute to equal boundaries
// returns it, with no graph node and no message. Every rank of the mesh makes the call.
// Backward changes the gradient's representation only: on the mesh dims that moved it goes straight
// to the source's placement, on the others a P(sum) gradient passes.
//
// Memory: a result shares it with its argument only where this rank's box and value stay and
// nothing is sent (look_ahead() tells). A slice has memory of its own, so that the whole can go.
// PlacementError: P(a) to P(b), another mesh; ArgumentError: another shape.

#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "dtensor/base/call_site.h"
#include "dtensor/tensor/dtensor.h"
#include "dtensor/tensor/move.h"
#include "dtensor/tensor/pending.h"

namespace dtensor {

// By request what is sent is rounded to another floating dtype; see tensor/move.h for what is
// rounded when. A move that sends nothing rounds nothing.
struct RedistributeOptions {
  std::optional<DType> wire_dtype = {};       // of this call
  std::optional<DType> grad_wire_dtype = {};  // of what its backward sends
  CallSite site = CallSite::here();
};

// Placements by mesh dim; missing ones at the end are R. A mesh dim whose placement is the same
// keeps its level; a new Shard is appended last, with unit 1.
[[nodiscard]] DTensor redistribute(const DTensor& t, std::span<const Placement> placements,
                                   const RedistributeOptions& options = {});
[[nodiscard]] DTensor redistribute(const DTensor& t, std::initializer_list<Placement> placements,
                                   const RedistributeOptions& options = {});
// Only the dims of the slice change.
[[nodiscard]] DTensor redistribute(const DTensor& t, const MeshSlice& dims,
                                   std::initializer_list<Placement> placements,
                                   const RedistributeOptions& options = {});
[[nodiscard]] DTensor redistribute(const DTensor& t, const Layout& to,
                                   const RedistributeOptions& options = {});
// To another mesh of the same root Comm: disjoint, overlapping, of any size. Called by every rank
// of either mesh; one that is outside the tensor's passes its handle, one outside `mesh` gets one.
// The placements count from R on every dim. Backward sends the gradient back, with every rank's
// call.
[[nodiscard]] DTensor redistribute(const DTensor& t, const DeviceMesh& mesh, const Layout& to,
                                   const RedistributeOptions& options = {});
[[nodiscard]] DTensor redistribute(const DTensor& t, const DeviceMesh& mesh,
                                   std::span<const Placement> placements,
                                   const RedistributeOptions& options = {});
[[nodiscard]] DTensor redistribute(const DTensor& t, const DeviceMesh& mesh,
                                   std::initializer_list<Placement> placements,
                                   const RedistributeOptions& options = {});
// A list of one mesh: one Comm call per step for those whose plans make the same calls, forward and
// backward. to[i] is for ts[i]; ArgumentError for other numbers, or tensors of two meshes.
[[nodiscard]] std::vector<DTensor> redistribute(std::span<const DTensor> ts,
                                                std::span<const Layout> to,
                                                const RedistributeOptions& options = {});
[[nodiscard]] std::vector<DTensor> redistribute(std::span<const DTensor> ts, const DeviceMesh& mesh,
                                                std::span<const Layout> to,
                                                const RedistributeOptions& options = {});
// The same without waiting: the first collectives are issued, and wait() gives the tensors.
Pending<DTensor> redistribute_async(const DTensor& t, const Layout& to,
                                    const RedistributeOptions& options = {});
Pending<std::vector<DTensor>> redistribute_async(std::span<const DTensor> ts,
                                                 std::span<const Layout> to,
                                                 const RedistributeOptions& options = {});
Pending<DTensor> redistribute_async(const DTensor& t, const DeviceMesh& mesh, const Layout& to,
                                    const RedistributeOptions& options = {});
Pending<std::vector<DTensor>> redistribute_async(std::span<const DTensor> ts,
                                                 const DeviceMesh& mesh, std::span<const Layout> to,
                                                 const RedistributeOptions& options = {});
// For libraries above: `op` and `cause` are who asked, for the ledger; what backward sends is
// entered as the adjoint of `op`.
[[nodiscard]] DTensor redistribute(const DTensor& t, const Layout& to, const MoveOptions& options);

// What redistribute(t, to) would do. Nothing is sent; every rank may ask, also alone.
struct LookAhead {
  bool is_free = true;              // no rank sends anything
  bool shares_memory = true;        // the result's storage on this rank is the argument's
  int64_t payload_bytes = 0;        // over all ranks
  int64_t most_received_bytes = 0;  // by the rank that receives most
};
LookAhead look_ahead(const DTensor& t, const Layout& to);
LookAhead look_ahead(const DTensor& t, const DeviceMesh& mesh, const Layout& to);

// A whole tensor's handle onto a mesh, R on every dim: every rank has the same value. No message
// and no copy. Its gradient comes back R. A tensor that lies on this mesh is returned as it is;
// PlacementError for one on another.
[[nodiscard]] DTensor replicate(const DTensor& t, const DeviceMesh& mesh);

}  // namespace dtensor
