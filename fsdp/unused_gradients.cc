#include "dtensor/fsdp/unused_gradients.h"

#include <algorithm>

namespace dtensor::fsdp {

bool UnusedGradients::is_sum(int mesh_dim, size_t index, std::span<const DTensor> grads,
                             uint32_t cut_dims) const {
  int sums = 0;
  int others = 0;
  for (const DTensor& g : grads) {
    if (!g.defined() || g.layout().placement(mesh_dim).is_shard()) continue;
    ++(g.layout().placement(mesh_dim).is_partial() ? sums : others);
  }
  if (sums > 0 && others == 0) return true;
  if (before_[index]) return before_[index]->placement(mesh_dim).is_partial();
  if (sums + others > 0) return false;
  return (cut_dims >> mesh_dim & 1) != 0;
}

DTensor UnusedGradients::zero(size_t index, const Member& member, std::span<const DTensor> grads,
                              uint32_t cut_dims) const {
  Layout layout = member.gathered;
  for (int m = 0; m < dims_.mesh.ndim(); ++m) {
    if (!layout.placement(m).is_replicate()) continue;
    const bool own = std::ranges::find(dims_.dims, m) != dims_.dims.end();
    if (own || is_sum(m, index, grads, cut_dims)) layout = layout.with(m, Partial());
  }
  const auto& at = dims_.mesh.coordinate();
  if (!at) return DTensor(member.dtype, layout, dims_.mesh);
  // One element that stands for all of them.
  const Shape shape = layout.local_shape(*at);
  const Tensor zero = Tensor::zeros(Shape::filled(shape.ndim(), 1), member.dtype);
  return DTensor(zero.expand(shape), layout, dims_.mesh);
}

}  // namespace dtensor::fsdp
