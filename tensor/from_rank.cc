#include "dtensor/tensor/from_rank.h"

#include <string>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/tensor/dtensor_impl.h"
#include "dtensor/tensor/move.h"

namespace dtensor {
namespace {

Shape shape_of(const Tensor& full, const FromRank& from) {
  if (full.defined()) return full.shape();
  if (from.shape) return *from.shape;
  throw ArgumentError("distribute from rank " + std::to_string(from.from_rank) +
                      ": this rank has no tensor, and its shape is not stated; use {.from_rank = " +
                      std::to_string(from.from_rank) + ", .shape = Shape{...}, .dtype = ...}");
}

DType dtype_of(const Tensor& full, const FromRank& from) {
  if (full.defined()) return full.dtype();
  if (from.dtype) return *from.dtype;
  throw ArgumentError("distribute from rank " + std::to_string(from.from_rank) +
                      ": this rank has no tensor, and its dtype is not stated; give .dtype");
}

}  // namespace

Layout internal::on_rank(int rank, const Shape& shape) {
  return Layout::replicated(MeshLayout({{"rank", 1}}, {rank}), shape);
}

void internal::check_rank(int rank, const DeviceMesh& mesh, const char* call) {
  if (!mesh.defined()) throw ArgumentError(std::string(call) + ": there is no mesh");
  if (rank >= 0 && rank < mesh.root().size()) return;
  throw ArgumentError(std::string(call) + ": rank " + std::to_string(rank) + " is not in \"" +
                      mesh.root().name() + "\", which has " + std::to_string(mesh.root().size()) +
                      " ranks");
}

DTensor distribute(const Tensor& full, const DeviceMesh& mesh, const Layout& layout,
                   const FromRank& from) {
  internal::check_rank(from.from_rank, mesh, "distribute");
  const bool has_it = mesh.rank() == from.from_rank;
  if (has_it && !full.defined()) {
    throw ArgumentError("distribute from rank " + std::to_string(from.from_rank) +
                        ": that rank's tensor is undefined");
  }
  for (const Shape& stated :
       {full.defined() ? full.shape() : layout.shape(), from.shape.value_or(layout.shape())}) {
    if (stated == layout.shape()) continue;
    throw ArgumentError("distribute: the tensor has shape " + to_string(stated) + ", the layout " +
                        to_string(layout.shape()));
  }
  const DType dtype = dtype_of(full, from);
  if (from.dtype && *from.dtype != dtype) {
    throw ArgumentError("distribute: the tensor is " + std::string(name_of(dtype)) +
                        ", stated is " + std::string(name_of(*from.dtype)));
  }
  const MoveItem item{.local = has_it ? full : Tensor(),
                      .from = internal::on_rank(from.from_rank, layout.shape()),
                      .to = layout,
                      .dtype = dtype};
  Tensor piece = move_local(mesh, item, {.op = "distribute", .site = from.site});
  if (piece.defined() && full.defined() && piece.storage() == full.storage()) piece = piece.clone();
  return internal::placed(std::move(piece), dtype, layout, mesh);
}

DTensor distribute(const Tensor& full, const DeviceMesh& mesh,
                   std::span<const Placement> placements, const FromRank& from) {
  return distribute(full, mesh, Layout(mesh.layout(), shape_of(full, from), placements), from);
}

DTensor distribute(const Tensor& full, const DeviceMesh& mesh,
                   std::initializer_list<Placement> placements, const FromRank& from) {
  return distribute(full, mesh, std::span(placements.begin(), placements.size()), from);
}

Tensor full_on(const DTensor& t, int rank, CallSite site) {
  internal::check_rank(rank, t.mesh(), "full_on");
  const MoveItem item{.local = internal::local_or_none(t),
                      .from = t.layout(),
                      .to = internal::on_rank(rank, t.shape()),
                      .dtype = t.dtype()};
  return move_local(t.mesh(), item, {.op = "full_on", .site = site});
}

}  // namespace dtensor
