// Between whole tensors, local pieces and DTensors.

#pragma once

#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// ---- A whole tensor onto a mesh. Every rank has `full`; no message. P keeps it at coordinate 0.
DTensor distribute(const Tensor& full, const DeviceMesh& mesh,
                   std::span<const Placement> placements);
DTensor distribute(const Tensor& full, const DeviceMesh& mesh,
                   std::initializer_list<Placement> placements);
DTensor distribute(const Tensor& full, const DeviceMesh& mesh, const Layout& layout);
// R on every dim. A tensor that already lies on this mesh is returned as it is.
DTensor replicate(const DTensor& t, const DeviceMesh& mesh);

// ---- New placements, same value. [[nodiscard]]: the argument is not changed.
// A redistribute to equal boundaries returns its argument, with no graph node and no message.
[[nodiscard]] DTensor redistribute(const DTensor& t, std::initializer_list<Placement> placements,
                                   CallSite site = CallSite::here());
[[nodiscard]] DTensor redistribute(const DTensor& t, std::span<const Placement> placements,
                                   CallSite site = CallSite::here());
// Only the dims of the slice change.
[[nodiscard]] DTensor redistribute(const DTensor& t, const MeshSlice& dims,
                                   std::initializer_list<Placement> placements,
                                   CallSite site = CallSite::here());
[[nodiscard]] DTensor redistribute(const DTensor& t, const Layout& to,
                                   CallSite site = CallSite::here());

// ---- Local pieces.
enum class GradPlacement { kNotStated, kReplicated, kPartial };
struct LocalOptions {
  // Wanted where `t` requires grad and is R on some dim: does every rank compute the same of the
  // local tensor (kReplicated) or a part (kPartial)? PlacementError showing the two otherwise.
  GradPlacement grad = GradPlacement::kNotStated;
};
// On no mesh, with a gradient to `t`.
DTensor local(const DTensor& t, const LocalOptions& options = {});
DTensor from_local(const DTensor& piece, const DeviceMesh& mesh, const Layout& layout,
                   const LocalOptions& options = {});
// The whole value on every rank, on no mesh: a collective that the call asks for. No gradient.
Tensor full(const DTensor& t, CallSite site = CallSite::here());
// Same shape, dtype and value, bit for bit? The same answer on every rank: a collective where one
// is cut or Partial.
bool equal(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());

// ---- Factories. Without a mesh: on no mesh.
struct FactoryOptions {
  DType dtype = DType::kFloat32;
  uint64_t seed = 0;             // of randn and uniform
  std::string_view stream = {};  // a name; the bits depend on (seed, stream, global index) alone
};
DTensor zeros(const Shape& shape, const DeviceMesh& mesh = {},
              std::span<const Placement> placements = {}, const FactoryOptions& options = {});
DTensor full(const Shape& shape, double value, const DeviceMesh& mesh = {},
             std::span<const Placement> placements = {}, const FactoryOptions& options = {});
DTensor randn(const Shape& shape, const DeviceMesh& mesh = {},
              std::span<const Placement> placements = {}, const FactoryOptions& options = {});
// R on the mesh of `like` (on none where it is on none).
DTensor arange(int64_t n, const DTensor& like, const FactoryOptions& options = {});
DTensor constant(const Tensor& value, const DTensor& like);

}  // namespace dtensor
