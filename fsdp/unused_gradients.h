// UnusedGradients: the gradients of parameters that this rank did not use in a backward while
// others may have: zero, and placed as theirs are, so that all make the same calls. On the dims of
// fully_shard it is a part of a sum. On other mesh dims that the parameter is R on a gradient is a
// part of a sum where the batch is cut, and whole where that is whole; no message tells which, but
// the other gradients of the group, those that the parameter had before, and the module's inputs
// and output.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "dtensor/fsdp/gathered.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor::fsdp {

class UnusedGradients {
 public:
  UnusedGradients(MeshSlice dims, size_t members) : dims_(std::move(dims)), before_(members) {}

  // A gradient of a member, as backward brought it.
  void saw(size_t index, const Layout& layout) { before_[index] = layout; }
  // `grads`: those of the group in this backward; undefined entries where there is none.
  // `cut_dims`: see Pass.
  DTensor zero(size_t index, const Member& member, std::span<const DTensor> grads,
               uint32_t cut_dims) const;

 private:
  bool is_sum(int mesh_dim, size_t index, std::span<const DTensor> grads, uint32_t cut_dims) const;

  MeshSlice dims_;
  std::vector<std::optional<Layout>> before_;
};

}  // namespace dtensor::fsdp
