// Between DTensors and this rank's pieces. The pieces are on no mesh: ordinary tensors, that every
// rank computes with on its own.
//
// Gradients cross the border like this. Where the DTensor is cut, a piece's gradient is the piece
// of the gradient. Where it is P(sum), it is the whole gradient (R). Where it is R nothing can be
// derived: either every rank computes the same of its copy (kReplicated), or each a part whose sum
// counts (kPartial). It has to be stated; nothing is guessed.

#pragma once

#include <initializer_list>
#include <optional>
#include <span>

#include "dtensor/base/call_site.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor {

enum class GradPlacement { kNotStated, kReplicated, kPartial };
struct LocalOptions {
  // Needed where the tensor requires grad and is R on a mesh dim of more than one rank:
  // PlacementError showing the two choices otherwise.
  GradPlacement grad = GradPlacement::kNotStated;
  CallSite site = CallSite::here();
};

// This rank's piece, sharing memory. InternalError on a rank outside the mesh.
DTensor local(const DTensor& t, const LocalOptions& options = {});

// The DTensor whose piece here is `piece`, sharing memory; the global shape is the layout's.
// Outside the mesh a handle without a piece; there the gradient of `piece` is 0. ArgumentError
// naming both shapes where this rank's piece has another one; no message, so that the others go on
// to their next collective. The caller vouches that R copies are equal.
DTensor from_local(const DTensor& piece, const DeviceMesh& mesh, const Layout& layout,
                   const LocalOptions& options = {});

// Which global shape pieces have: given, or, by name, agreed.
struct Agree {};
inline constexpr Agree kAgree{};
class GlobalShape {
 public:
  GlobalShape() = default;                            // not stated: an error
  GlobalShape(const Shape& shape) : shape_(shape) {}  // NOLINT(*-explicit-*)
  GlobalShape(std::initializer_list<int64_t> dims) : shape_(dims) {}
  // The ranks tell each other their sizes, by one all-gather of 80 bytes a rank.
  GlobalShape(Agree) : agrees_(true) {}  // NOLINT(*-explicit-*)

  bool agrees() const { return agrees_; }
  const std::optional<Shape>& shape() const { return shape_; }

 private:
  std::optional<Shape> shape_;
  bool agrees_ = false;
};

struct FromLocalOptions {
  GlobalShape shape = {};
  GradPlacement grad = GradPlacement::kNotStated;  // as in LocalOptions
  CallSite site = CallSite::here();
};
// The same by placements: from_local(piece, mesh, {Shard(0)}, {.shape = {10, 2}}), or
// {.shape = kAgree}. Agreed, sizes that no global shape cuts into are an ArgumentError that names
// the right ones, the same on every rank of the mesh; so are two numbers of dims or two dtypes. A
// rank outside the mesh takes no part in the exchange and cannot use it: ArgumentError there.
DTensor from_local(const DTensor& piece, const DeviceMesh& mesh,
                   std::span<const Placement> placements, const FromLocalOptions& options);
DTensor from_local(const DTensor& piece, const DeviceMesh& mesh,
                   std::initializer_list<Placement> placements, const FromLocalOptions& options);

// The whole value on every rank, on no mesh, with its gradient: local() of a redistribute to R. The
// gradient's placement is stated as there.
[[nodiscard]] DTensor full_tensor(const DTensor& t, const LocalOptions& options = {});

// The whole value on every rank of the mesh, on no mesh: a collective that the call asks for. No
// gradient. Shares memory where nothing had to move. ArgumentError outside the mesh.
[[nodiscard]] Tensor full(const DTensor& t, CallSite site = CallSite::here());

// Same shape, dtype and value, bit for bit? The same answer on every rank: a collective where one
// is cut or Partial. Every rank of the mesh calls it. PlacementError for tensors of two meshes.
bool equal(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());

}  // namespace dtensor
