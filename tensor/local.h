// Between DTensors and this rank's pieces. The pieces are on no mesh: ordinary tensors, that every
// rank computes with on its own.
//
// Gradients cross the border like this. Where the DTensor is cut, a piece's gradient is the piece
// of the gradient. Where it is P(sum), it is the whole gradient (R). Where it is R nothing can be
// derived: either every rank computes the same of its copy (kReplicated), or each a part whose sum
// counts (kPartial). It has to be stated; nothing is guessed.

#pragma once

#include "dtensor/base/call_site.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor {

enum class GradPlacement { kNotStated, kReplicated, kPartial };
struct LocalOptions {
  // Needed where the tensor requires grad and is R on a mesh dim of more than one rank:
  // PlacementError showing the two choices otherwise.
  GradPlacement grad = GradPlacement::kNotStated;
};

// This rank's piece, sharing memory. InternalError on a rank outside the mesh.
DTensor local(const DTensor& t, const LocalOptions& options = {});

// The DTensor whose piece here is `piece`, sharing memory; the global shape is the layout's.
// ArgumentError naming both shapes where this rank's piece has another one; no message, so that
// the others go on to their next collective. The caller vouches that R copies are equal.
DTensor from_local(const DTensor& piece, const DeviceMesh& mesh, const Layout& layout,
                   const LocalOptions& options = {});

// The whole value on every rank of the mesh, on no mesh: a collective that the call asks for. No
// gradient. Shares memory where nothing had to move. ArgumentError outside the mesh.
Tensor full(const DTensor& t, CallSite site = CallSite::here());

// Same shape, dtype and value, bit for bit? The same answer on every rank: a collective where one
// is cut or Partial. Every rank of the mesh calls it. PlacementError for tensors of two meshes.
bool equal(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());

}  // namespace dtensor
