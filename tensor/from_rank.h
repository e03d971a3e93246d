// Whole tensors that one rank has: onto a mesh, and back to one rank. Each rank is sent what it
// needs and no more: a scatter, and a broadcast only of what every rank shall have.
// Called by every rank of the mesh and by the one rank, which may lie outside.

#pragma once

#include <initializer_list>
#include <optional>
#include <span>

#include "dtensor/base/call_site.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor {

struct FromRank {
  int from_rank = 0;  // of the root Comm
  // For the ranks that pass an undefined `full`; a defined one tells its own.
  std::optional<Shape> shape = {};
  std::optional<DType> dtype = {};
  CallSite site = CallSite::here();
};
// distribute(full, mesh, {Shard(0)}, {.from_rank = 0}): only that rank's `full` is read; of the
// others' shape and dtype count. A Partial tensor gets the value at coordinate 0 (P(min) and P(max)
// everywhere). Missing placements at the end are R. The result has memory of its own.
// ArgumentError where shape or dtype is not known, or `full` is undefined on the one rank; what
// that rank alone can know is an error there alone.
[[nodiscard]] DTensor distribute(const Tensor& full, const DeviceMesh& mesh,
                                 std::span<const Placement> placements, const FromRank& from);
[[nodiscard]] DTensor distribute(const Tensor& full, const DeviceMesh& mesh,
                                 std::initializer_list<Placement> placements, const FromRank& from);
[[nodiscard]] DTensor distribute(const Tensor& full, const DeviceMesh& mesh, const Layout& layout,
                                 const FromRank& from);

// The whole value on one rank of the root Comm; undefined on the others. No gradient. Shares memory
// where nothing had to move.
[[nodiscard]] Tensor full_on(const DTensor& t, int rank, CallSite site = CallSite::here());

namespace internal {

// The layout of a whole tensor that one rank has.
Layout on_rank(int rank, const Shape& shape);
// ArgumentError for a rank that the mesh's root does not have.
void check_rank(int rank, const DeviceMesh& mesh, const char* call);

}  // namespace internal
}  // namespace dtensor
