#include "dtensor/tensor/redistribute.h"

#include <string>
#include <utility>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/tensor/alias.h"
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

void check_can_move(const DTensor& t, const DeviceMesh& mesh, const Layout& to) {
  if (!(mesh.layout() == to.mesh())) {
    throw PlacementError("redistribute of " + internal::describe(t) + " to " + to_string(to) +
                         ", a layout of another mesh" +
                         (t.mesh().defined() ? "; give that mesh: redistribute(t, mesh, layout)"
                                             : "; use replicate(t, mesh) first"));
  }
  if (!(t.mesh() == mesh) && !(t.mesh().defined() && mesh.defined())) {
    throw PlacementError("redistribute of " + internal::describe(t) + " to " + to_string(to) +
                         (t.mesh().defined() ? ", on no mesh; use full(t) for the whole value"
                                             : ", and it is on no mesh; use replicate(t, mesh) or "
                                               "distribute(full, mesh, placements)"));
  }
  if (t.mesh().defined() && &t.mesh().root() != &mesh.root()) {
    throw PlacementError("redistribute of " + internal::describe(t) + " to " + to_string(to) +
                         ": the two meshes are of two root Comms, \"" + t.mesh().root().name() +
                         "\" and \"" + mesh.root().name() + "\"; make both on one");
  }
  if (!(t.shape() == to.shape())) {
    throw ArgumentError("redistribute of " + internal::describe(t) + " to a layout of shape " +
                        to_string(to.shape()) + ": the shape must be the same");
  }
}

bool stays(const Layout& from, const Layout& to) {
  return from == to || (from.mesh() == to.mesh() && equal_boundaries(from, to));
}

// Where the gradient of a moved tensor goes: straight to the source's placement on the mesh dims
// that moved; elsewhere a Partial one passes where the source is R.
Layout adjoint_of(const Layout& grad, const Layout& from, const Layout& to, std::string_view op) {
  for (const Layout* layout : {&from, &to}) {
    if (!layout->spec().has_partial() || layout->spec().partial_op() == PartialOp::kSum) continue;
    throw PlacementError("backward of " + std::string(op) + " from " + to_string(from.spec()) +
                         " to " + to_string(to.spec()) + ": " +
                         to_string(Partial(layout->spec().partial_op())) +
                         " has no gradient; redistribute to R before the reduction");
  }
  Layout target = internal::dual(from, from, false, op);
  if (!(grad.mesh() == from.mesh())) return target;  // from another mesh it comes resolved
  for (int m = 0; m < from.mesh().ndim(); ++m) {
    const Placement p = grad.placement(m);
    if (p.is_partial() && from.placement(m).is_replicate() && !moved(from, to, m)) {
      target = target.with(m, p);
    }
  }
  return target;
}

// Who asked, kept for backward.
struct Asked {
  std::string op;
  Cause cause = Cause::kExplicit;
  std::string of;
  CallSite site;
  std::optional<DType> wire_dtype;
  std::optional<DType> grad_wire_dtype;

  Asked(const MoveOptions& o, const RedistributeOptions& r)
      : op(o.op),
        cause(o.cause),
        of(o.of),
        site(o.site),
        wire_dtype(r.wire_dtype),
        grad_wire_dtype(r.grad_wire_dtype) {}
  explicit Asked(const RedistributeOptions& r) : Asked(MoveOptions{.site = r.site}, r) {}
};

struct Route {
  Layout from;
  Layout to;
};

// What a result lies in, the same on every rank.
enum class Memory : uint8_t {
  kOwn,       // what messages bring, and slices, so that the whole can be freed
  kBorrowed,  // the argument's, on some ranks: its value stays there and means another thing (R to
              // P), or ranks leave (another mesh)
  kSame,      // the argument's, everywhere: only mesh dims of one rank change
};

Memory memory_of(const Route& route, bool is_free) {
  if (!is_free) return Memory::kOwn;
  const MeshLayout& mesh = route.from.mesh();
  if (!(mesh == route.to.mesh())) return Memory::kBorrowed;
  bool same = true;
  for (int m = 0; m < mesh.ndim(); ++m) {
    same = same && (mesh.size(m) == 1 || !moved(route.from, route.to, m));
  }
  if (same) return Memory::kSame;
  const bool becomes_partial = route.to.spec().has_partial() && !route.from.spec().has_partial();
  return becomes_partial ? Memory::kBorrowed : Memory::kOwn;
}

// The gradients of a list that moved together move together.
// `mesh` is where the tensors came from.
std::vector<DTensor> adjoint(std::span<const DTensor> grads, std::span<const Route> routes,
                             const DeviceMesh& mesh, const Asked& asked) {
  std::vector<DTensor> out(grads.size());
  std::vector<MoveItem> items;
  std::vector<size_t> moving;
  DeviceMesh grads_mesh;
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined()) continue;
    grads_mesh = grads[i].mesh();
    const Layout& from = grads[i].layout();
    const Layout to = adjoint_of(from, routes[i].from, routes[i].to, asked.op);
    if (stays(from, to)) {
      out[i] = from == to ? grads[i]
                          : internal::placed(internal::local_or_none(grads[i]), grads[i].dtype(),
                                             to, grads_mesh);
      continue;
    }
    items.push_back({.local = internal::local_or_none(grads[i]),
                     .from = from,
                     .to = to,
                     .wire_dtype = asked.grad_wire_dtype,
                     .dtype = grads[i].dtype()});
    moving.push_back(i);
  }
  if (moving.empty()) return out;
  std::vector<Layout> to;
  for (const MoveItem& item : items) to.push_back(item.to);
  const MoveOptions options{
      .op = "redistribute", .cause = Cause::kAdjoint, .of = asked.op, .site = asked.site};
  std::vector<Tensor> moved = Move::start(grads_mesh, std::move(items), options).finish();
  for (size_t k = 0; k < moving.size(); ++k) {
    const DType dtype = grads[moving[k]].dtype();
    out[moving[k]] = internal::placed(std::move(moved[k]), dtype, to[k], mesh);
  }
  return out;
}

using PendingList = Pending<std::vector<DTensor>>;

// A list on its way.
struct List {
  std::vector<DTensor> all;         // as given; what moves is replaced
  std::vector<size_t> moving = {};  // indices into it
  std::vector<Route> routes = {};   // of those
  std::vector<bool> free = {};      // of those: does it move without a message?
  DeviceMesh from = {};
  DeviceMesh to = {};
  Asked asked;
  bool records = grad_enabled();  // as it was when the list set out

  std::vector<DTensor> arrive(std::vector<Tensor> moved);
};

// Also on a rank that lacked nothing.
void own_memory(Tensor& moved, const DTensor& from) {
  if (moved.defined() && from.has_local() && moved.storage() == from.local_tensor().storage()) {
    moved = moved.clone();
  }
}

std::vector<DTensor> List::arrive(std::vector<Tensor> moved) {
  if (moving.empty()) return std::move(all);
  std::vector<DTensor> in;
  std::vector<DTensor> out;
  for (size_t k = 0; k < moving.size(); ++k) {
    in.push_back(all[moving[k]]);
    const Memory memory = memory_of(routes[k], free[k]);
    if (memory == Memory::kOwn) own_memory(moved[k], in.back());
    out.push_back(internal::placed(std::move(moved[k]), in.back().dtype(), routes[k].to, to));
    out.back().impl()->borrowed = memory == Memory::kBorrowed;
    internal::mark_alias(in.back(), out.back());
  }
  const ScopedSlot<GradMode> mode(GradMode{records});
  record(asked.op, in, out,
         [routes = routes, from = from, asked = asked](std::span<const DTensor> grads) {
           return adjoint(grads, routes, from, asked);
         },
         {.passes_partial = true, .site = asked.site});
  for (size_t k = 0; k < out.size(); ++k) all[moving[k]] = std::move(out[k]);
  return std::move(all);
}

// Issues the moves of a list. `mesh` is where it goes; where undefined, each stays on its own.
PendingList start(std::span<const DTensor> ts, const DeviceMesh& mesh, std::span<const Layout> to,
                  const Asked& asked) {
  if (ts.size() != to.size()) {
    throw ArgumentError("redistribute of a list: " + std::to_string(ts.size()) + " tensors, " +
                        std::to_string(to.size()) + " layouts; give one layout for each");
  }
  auto list = std::make_shared<List>(List{.all = {ts.begin(), ts.end()}, .asked = asked});
  std::vector<MoveItem> items;
  for (size_t i = 0; i < ts.size(); ++i) {
    const DTensor& t = ts[i];
    if (t.layout() == to[i] && (!mesh.defined() || t.mesh() == mesh)) continue;
    const DeviceMesh& target = mesh.defined() && !(t.mesh() == mesh) ? mesh : t.mesh();
    check_can_move(t, target, to[i]);
    if (stays(t.layout(), to[i])) continue;
    if (!items.empty() && !(t.mesh() == list->from)) {
      throw ArgumentError("redistribute of a list: " + internal::describe(t) +
                          " lies on another mesh than " + internal::describe(ts[0]) +
                          "; make a call for each mesh");
    }
    list->from = t.mesh();
    list->to = target;
    list->moving.push_back(i);
    list->routes.push_back({t.layout(), to[i]});
    items.push_back({.local = internal::local_or_none(t),
                     .from = t.layout(),
                     .to = to[i],
                     .wire_dtype = asked.wire_dtype,
                     .dtype = t.dtype()});
  }
  const MoveOptions options{
      .op = asked.op, .cause = asked.cause, .of = asked.of, .site = asked.site};
  Move move = Move::start(list->from, std::move(items), options);
  for (size_t k = 0; k < list->moving.size(); ++k) list->free.push_back(move.is_free(k));
  return PendingList(std::move(move),
                     [list](std::vector<Tensor> moved) { return list->arrive(std::move(moved)); });
}

Pending<DTensor> start_one(const DTensor& t, const DeviceMesh& mesh, const Layout& to,
                           const Asked& asked) {
  return start({&t, 1}, mesh, {&to, 1}, asked).then<DTensor>([](std::vector<DTensor> all) {
    return std::move(all[0]);
  });
}

Layout with_all(const DTensor& t, std::span<const Placement> placements) {
  const std::vector<int> dims = all_dims(t.layout().mesh());
  if (placements.size() > dims.size()) {
    throw PlacementError("redistribute of " + internal::describe(t) + ": " +
                         std::to_string(placements.size()) + " placements for a mesh of " +
                         std::to_string(dims.size()) + " dims" +
                         (t.mesh().defined() ? "" : "; use replicate(t, mesh) first"));
  }
  std::vector<Placement> all(placements.begin(), placements.end());
  all.resize(dims.size());
  return t.layout().with(dims, all);
}

}  // namespace

DTensor redistribute(const DTensor& t, const Layout& to, const MoveOptions& options) {
  if (t.layout() == to) return t;
  return start_one(t, {}, to, Asked(options, RedistributeOptions{})).wait();
}

DTensor redistribute(const DTensor& t, const Layout& to, const RedistributeOptions& options) {
  if (t.layout() == to) return t;
  return start_one(t, {}, to, Asked(options)).wait();
}

DTensor redistribute(const DTensor& t, const DeviceMesh& mesh, const Layout& to,
                     const RedistributeOptions& options) {
  return start_one(t, mesh, to, Asked(options)).wait();
}

DTensor redistribute(const DTensor& t, const DeviceMesh& mesh,
                     std::span<const Placement> placements, const RedistributeOptions& options) {
  if (t.mesh() == mesh) return redistribute(t, placements, options);
  return redistribute(t, mesh, Layout(mesh.layout(), t.shape(), placements), options);
}

DTensor redistribute(const DTensor& t, const DeviceMesh& mesh,
                     std::initializer_list<Placement> placements,
                     const RedistributeOptions& options) {
  return redistribute(t, mesh, std::span(placements.begin(), placements.size()), options);
}

DTensor redistribute(const DTensor& t, std::span<const Placement> placements,
                     const RedistributeOptions& options) {
  return redistribute(t, with_all(t, placements), options);
}

DTensor redistribute(const DTensor& t, std::initializer_list<Placement> placements,
                     const RedistributeOptions& options) {
  return redistribute(t, std::span<const Placement>(placements.begin(), placements.size()),
                      options);
}

DTensor redistribute(const DTensor& t, const MeshSlice& dims,
                     std::initializer_list<Placement> placements,
                     const RedistributeOptions& options) {
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
  return redistribute(t, t.layout().with(dims.dims, all), options);
}

std::vector<DTensor> redistribute(std::span<const DTensor> ts, std::span<const Layout> to,
                                  const RedistributeOptions& options) {
  return start(ts, {}, to, Asked(options)).wait();
}

std::vector<DTensor> redistribute(std::span<const DTensor> ts, const DeviceMesh& mesh,
                                  std::span<const Layout> to, const RedistributeOptions& options) {
  return start(ts, mesh, to, Asked(options)).wait();
}

Pending<std::vector<DTensor>> redistribute_async(std::span<const DTensor> ts,
                                                 std::span<const Layout> to,
                                                 const RedistributeOptions& options) {
  return start(ts, {}, to, Asked(options));
}

Pending<std::vector<DTensor>> redistribute_async(std::span<const DTensor> ts,
                                                 const DeviceMesh& mesh, std::span<const Layout> to,
                                                 const RedistributeOptions& options) {
  return start(ts, mesh, to, Asked(options));
}

Pending<DTensor> redistribute_async(const DTensor& t, const Layout& to,
                                    const RedistributeOptions& options) {
  return start_one(t, {}, to, Asked(options));
}

Pending<DTensor> redistribute_async(const DTensor& t, const DeviceMesh& mesh, const Layout& to,
                                    const RedistributeOptions& options) {
  return start_one(t, mesh, to, Asked(options));
}

LookAhead look_ahead(const DTensor& t, const DeviceMesh& mesh, const Layout& to) {
  LookAhead ahead;
  check_can_move(t, mesh, to);
  if (stays(t.layout(), to)) return ahead;
  const MoveForecast forecast = forecast_move(t.layout(), to, t.mesh());
  ahead.is_free = forecast.is_free;
  ahead.shares_memory =
      forecast.shares_memory && memory_of({t.layout(), to}, forecast.is_free) != Memory::kOwn;
  ahead.payload_bytes = forecast.payload * size_of(t.dtype());
  ahead.most_received_bytes = forecast.most_received * size_of(t.dtype());
  return ahead;
}

LookAhead look_ahead(const DTensor& t, const Layout& to) { return look_ahead(t, t.mesh(), to); }

DTensor replicate(const DTensor& t, const DeviceMesh& mesh) {
  if (t.mesh() == mesh) return t;
  if (t.mesh().defined()) {
    throw PlacementError("replicate of " + internal::describe(t) + " on another mesh, " +
                         to_string(mesh.layout()) + "; use redistribute(t, mesh, placements)");
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
