#include "dtensor/tensor/local.h"

#include <cstring>
#include <string>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/tensor/agreed_shape.h"
#include "dtensor/tensor/alias.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tensor/backward.h"
#include "dtensor/tensor/dtensor_impl.h"
#include "dtensor/tensor/move.h"
#include "dtensor/tensor/redistribute.h"

namespace dtensor {
namespace {

// Is the layout R on a mesh dim of several ranks?
bool has_replicas(const Layout& layout) {
  for (int m = 0; m < layout.mesh().ndim(); ++m) {
    if (layout.placement(m).is_replicate() && layout.mesh().size(m) > 1) return true;
  }
  return false;
}

void check_stated(const char* call, const DTensor& t, const Layout& layout,
                  const LocalOptions& options) {
  if (!grad_enabled() || !t.requires_grad() || !has_replicas(layout) ||
      options.grad != GradPlacement::kNotStated) {
    return;
  }
  throw PlacementError(
      std::string(call) + " of a tensor that requires grad and is R on a mesh dim, " +
      to_string(layout.spec()) +
      ": its gradient cannot be derived. Use {.grad = GradPlacement::kPartial} where each rank "
      "computes a part (say, of its own rows), {.grad = GradPlacement::kReplicated} where every "
      "rank computes the same");
}

// The layout of a gradient that crosses the border of a region on pieces.
Layout border(const Layout& layout, const LocalOptions& options, const char* call) {
  Layout to = internal::dual(layout, layout, false, call);
  for (int m = 0; m < layout.mesh().ndim(); ++m) {
    if (layout.placement(m).is_replicate() && options.grad == GradPlacement::kPartial) {
      to = to.with(m, Partial());
    }
  }
  return to;
}

void check_inside(const char* call, const DTensor& t) {
  if (t.has_local()) return;
  throw ArgumentError(std::string(call) + " of " + internal::describe(t) + ": rank " +
                      std::to_string(t.mesh().rank()) + " is outside its mesh; call it on the " +
                      "ranks of " + to_string(t.mesh().layout()));
}

bool equal_bits(const Tensor& a, const Tensor& b) {
  if (a.numel() == 0) return true;
  const Tensor x = a.contiguous();
  const Tensor y = b.contiguous();
  return std::memcmp(x.raw(), y.raw(), static_cast<size_t>(x.size_bytes())) == 0;
}

Tensor moved(const DTensor& t, const Layout& to, std::string_view op, CallSite site) {
  if (equal_boundaries(t.layout(), to)) return t.local_tensor();
  const MoveItem item{.local = t.local_tensor(), .from = t.layout(), .to = to};
  return move_local(t.mesh(), item, {.op = op, .site = site});
}

// Is it true on every rank among which `compared` is cut?
bool everywhere(bool here, const Layout& compared, const DeviceMesh& mesh, CallSite site) {
  Layout from = Layout::replicated(mesh.layout(), Shape{});
  const Layout to = from;
  for (int m = 0; m < mesh.ndim(); ++m) {
    if (compared.placement(m).is_shard()) from = from.with(m, Partial(PartialOp::kMin));
  }
  const MoveItem item{
      .local = Tensor::full({}, here ? 1 : 0, DType::kUInt8), .from = from, .to = to};
  return *move_local(mesh, item, {.op = "equal", .site = site}).data<uint8_t>() != 0;
}

}  // namespace

DTensor local(const DTensor& t, const LocalOptions& options) {
  DTensor out(t.local_tensor());
  if (!t.mesh().defined()) return t;
  check_stated("local()", t, t.layout(), options);
  internal::mark_alias(t, out);
  record("local", {&t, 1}, {&out, 1},
         [layout = t.layout(), mesh = t.mesh(), options](std::span<const DTensor> grads) {
           return std::vector<DTensor>{
               DTensor(grads[0].local_tensor(), border(layout, options, "local"), mesh)};
         });
  return out;
}

DTensor from_local(const DTensor& piece, const DeviceMesh& mesh, const Layout& layout,
                   const LocalOptions& options) {
  if (piece.mesh().defined()) {
    throw ArgumentError("from_local of " + internal::describe(piece) +
                        ", which is on a mesh already; use redistribute");
  }
  check_stated("from_local()", piece, layout, options);
  const bool inside = mesh.coordinate().has_value();
  DTensor out =
      inside ? DTensor(piece.local_tensor(), layout, mesh) : DTensor(piece.dtype(), layout, mesh);
  internal::mark_alias(piece, out);
  // Outside too: what is behind the piece may move between ranks in backward.
  record("from_local", {&piece, 1}, {&out, 1},
         [layout, options, shape = piece.shape()](std::span<const DTensor> grads) {
           const DTensor grad = internal::move_grad(grads[0], border(layout, options, "from_local"),
                                                    "resolve", "from_local", options.site);
           return std::vector<DTensor>{DTensor(
               grad.has_local() ? grad.local_tensor() : Tensor::zeros(shape, grad.dtype()))};
         },
         {.passes_partial = true});
  return out;
}

DTensor from_local(const DTensor& piece, const DeviceMesh& mesh,
                   std::span<const Placement> placements, const FromLocalOptions& options) {
  if (!options.shape.agrees() && !options.shape.shape()) {
    throw ArgumentError("from_local of " + internal::describe(piece) +
                        " by placements: the global shape is not stated. Use {.shape = {...}}, or "
                        "{.shape = kAgree} to let the ranks exchange their sizes");
  }
  const Shape shape = options.shape.agrees()
                          ? internal::agreed_shape(piece, mesh, placements, options.site)
                          : *options.shape.shape();
  return from_local(piece, mesh, Layout(mesh.layout(), shape, placements),
                    {.grad = options.grad, .site = options.site});
}

DTensor from_local(const DTensor& piece, const DeviceMesh& mesh,
                   std::initializer_list<Placement> placements, const FromLocalOptions& options) {
  return from_local(piece, mesh, std::span(placements.begin(), placements.size()), options);
}

DTensor full_tensor(const DTensor& t, const LocalOptions& options) {
  check_inside("full_tensor", t);
  const MoveOptions asked{.op = "full_tensor", .site = options.site};
  return local(redistribute(t, Layout::replicated(t.layout().mesh(), t.shape()), asked), options);
}

Tensor full(const DTensor& t, CallSite site) {
  check_inside("full", t);
  return moved(t, Layout::replicated(t.layout().mesh(), t.shape()), "full", site);
}

bool equal(const DTensor& a, const DTensor& b, CallSite site) {
  if (!(a.mesh() == b.mesh())) {
    throw PlacementError("equal of " + internal::describe(a) + " and " + internal::describe(b) +
                         ": they lie on two meshes; use replicate(x, mesh) for one on none");
  }
  if (!(a.shape() == b.shape()) || a.dtype() != b.dtype()) return false;
  check_inside("equal", a);
  if (!a.mesh().defined()) return equal_bits(a.local_tensor(), b.local_tensor());
  // By the cut of a, or of b where a has none: a replicated one is sliced without a message.
  Layout by = a.layout().spec().is_replicated() ? b.layout() : a.layout();
  for (int m = 0; m < a.mesh().ndim(); ++m) {
    if (by.placement(m).is_partial()) by = by.with(m, Replicate());
  }
  const bool here = equal_bits(moved(a, by, "equal", site), moved(b, by, "equal", site));
  return everywhere(here, by, a.mesh(), site);
}

}  // namespace dtensor
