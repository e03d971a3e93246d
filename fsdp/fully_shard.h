// fully_shard: fully sharded data parallel (as PyTorch's FSDP2): each parameter of a module stays
// itself, cut along dim 0 over mesh dims; before forward the module's group of parameters is
// gathered, after it freed, gathered again before backward, and its gradients reduced as soon as
// they are complete. Everything but the scheduling is redistribute and its adjoint.

#pragma once

#include <optional>

#include "dtensor/mesh/device_mesh.h"
#include "dtensor/nn/module.h"

namespace dtensor::fsdp {

struct Options {
  std::optional<DType> param_dtype = {};   // of the gathered parameters; the parameter's own
  std::optional<DType> reduce_dtype = {};  // of gradients on the wire; param_dtype
  // Free after forward, gather again for backward. Default: true, but for the root, whose group
  // would be gathered again at once.
  std::optional<bool> reshard_after_forward = {};
};

// Groups the parameters of `module` that no earlier fully_shard has taken (call it on children
// first, on the root last), and cuts them over `dims` behind the cuts they have (2.3: the level is
// appended last). Parameters and buffers on no mesh are replicated first. Options not given are
// taken from the root's.
// PlacementError: a second fully_shard of one module; a mesh other than the parameters'.
void fully_shard(nn::Module& module, const MeshSlice& dims, const Options& options = {});

// Counters of this Context, for tests and logs.
struct Stats {
  int live_groups = 0;  // gathered now, besides the root's
  int peak_groups = 0;
};
Stats stats();
void reset_peak();

}  // namespace dtensor::fsdp
