#include "dtensor/tensor/redistribute.h"

#include <string>
#include <utility>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tensor/backward.h"
#include "dtensor/tensor/dtensor_impl.h"

namespace dtensor {
namespace {

std::vector<int> all_dims(const MeshLayout& mesh) {
  std::vector<int> dims(static_cast<size_t>(mesh.ndim()));
  for (int m = 0; m < mesh.ndim(); ++m) dims[static_cast<size_t>(m)] = m;
  return dims;
}

// Is the placement of a mesh dim another one, or its level?
bool moved(const Layout& from, const Layout& to, int mesh_dim) {
  const Level* a = from.spec().level(mesh_dim);
  const Level* b = to.spec().level(mesh_dim);
  return !(from.placement(mesh_dim) == to.placement(mesh_dim)) ||
         (a != nullptr && b != nullptr && !(*a == *b));
}

void check_can_move(const DTensor& t, const Layout& to) {
  if (!(t.layout().mesh() == to.mesh())) {
    throw PlacementError("redistribute of " + internal::describe(t) + " to " + to_string(to) +
                         ": both layouts must be of one mesh" +
                         (t.mesh().defined() ? "" : "; use replicate(t, mesh) first"));
  }
  if (!(t.shape() == to.shape())) {
    throw ArgumentError("redistribute of " + internal::describe(t) + " to a layout of shape " +
                        to_string(to.shape()) + ": the shape must be the same");
  }
}

// The gradient goes straight to the source's placement on the mesh dims that moved; elsewhere a
// Partial one passes where the source is R.
std::vector<DTensor> adjoint(const DTensor& grad, const Layout& from, const Layout& to,
                             std::string_view op, CallSite site) {
  for (int m = 0; m < from.mesh().ndim(); ++m) {
    for (const Placement p : {from.placement(m), to.placement(m)}) {
      if (!p.is_partial() || p.op() == PartialOp::kSum) continue;
      throw PlacementError("backward of " + std::string(op) + " from " + to_string(from.spec()) +
                           " to " + to_string(to.spec()) + ": " + to_string(p) + " on mesh dim \"" +
                           from.mesh().name(m) +
                           "\" has no gradient; redistribute to R before the reduction");
    }
  }
  Layout target = internal::dual(from, from, false, op);
  for (int m = 0; m < from.mesh().ndim(); ++m) {
    const Placement p = grad.layout().placement(m);
    if (p.is_partial() && from.placement(m).is_replicate() && !moved(from, to, m)) {
      target = target.with(m, p);
    }
  }
  return {internal::move_grad(grad, target, "redistribute", op, site)};
}

}  // namespace

DTensor redistribute(const DTensor& t, const Layout& to, const MoveOptions& options) {
  if (t.layout() == to) return t;
  check_can_move(t, to);
  if (equal_boundaries(t.layout(), to)) return t;
  DTensor out;
  if (t.has_local()) {
    const MoveItem item{.local = t.local_tensor(), .from = t.layout(), .to = to};
    out = DTensor(move_local(t.mesh(), item, options), to, t.mesh());
  } else {
    static_cast<void>(plan(t.layout(), to));  // the same errors as inside the mesh
    out = DTensor(t.dtype(), to, t.mesh());
  }
  record(options.op, {&t, 1}, {&out, 1},
         [from = t.layout(), to, op = std::string(options.op), site = options.site](
             std::span<const DTensor> grads) { return adjoint(grads[0], from, to, op, site); },
         {.passes_partial = true, .site = options.site});
  return out;
}

DTensor redistribute(const DTensor& t, const Layout& to, CallSite site) {
  return redistribute(t, to, MoveOptions{.site = site});
}

DTensor redistribute(const DTensor& t, std::span<const Placement> placements, CallSite site) {
  const std::vector<int> dims = all_dims(t.layout().mesh());
  if (placements.size() > dims.size()) {
    throw PlacementError("redistribute of " + internal::describe(t) + ": " +
                         std::to_string(placements.size()) + " placements for a mesh of " +
                         std::to_string(dims.size()) + " dims" +
                         (t.mesh().defined() ? "" : "; use replicate(t, mesh) first"));
  }
  std::vector<Placement> all(placements.begin(), placements.end());
  all.resize(dims.size());
  return redistribute(t, t.layout().with(dims, all), site);
}

DTensor redistribute(const DTensor& t, std::initializer_list<Placement> placements, CallSite site) {
  return redistribute(t, std::span<const Placement>(placements.begin(), placements.size()), site);
}

DTensor redistribute(const DTensor& t, const MeshSlice& dims,
                     std::initializer_list<Placement> placements, CallSite site) {
  if (!(dims.mesh == t.mesh())) {
    throw PlacementError("redistribute of " + internal::describe(t) +
                         " by a slice of another mesh, " + to_string(dims.mesh.layout()));
  }
  if (placements.size() != dims.dims.size()) {
    throw ArgumentError("redistribute of " + internal::describe(t) + ": " +
                        std::to_string(placements.size()) + " placements for a slice of " +
                        std::to_string(dims.dims.size()) + " mesh dims; give one for each");
  }
  const std::span<const Placement> all(placements.begin(), placements.size());
  return redistribute(t, t.layout().with(dims.dims, all), site);
}

DTensor replicate(const DTensor& t, const DeviceMesh& mesh) {
  if (t.mesh() == mesh) return t;
  if (t.mesh().defined()) {
    throw PlacementError("replicate of " + internal::describe(t) + " on another mesh, " +
                         to_string(mesh.layout()) + "; redistribute it on its own");
  }
  const Layout to = Layout::replicated(mesh.layout(), t.shape());
  DTensor out =
      mesh.coordinate() ? DTensor(t.local_tensor(), to, mesh) : DTensor(t.dtype(), to, mesh);
  // The gradient arrives resolved: R, so that every rank's share is all of it.
  record("replicate", {&t, 1}, {&out, 1}, [](std::span<const DTensor> grads) {
    if (!grads[0].has_local()) return std::vector<DTensor>{DTensor()};
    return std::vector<DTensor>{DTensor(grads[0].local_tensor())};
  });
  return out;
}

}  // namespace dtensor
