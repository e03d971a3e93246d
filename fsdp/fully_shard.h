// fully_shard: fully sharded data parallel (as PyTorch's FSDP2): each parameter of a module stays
// itself, cut along a dim over mesh dims; before forward the module's group of parameters is
// gathered, after it freed, gathered again before backward, and its gradients reduced as soon as
// they are complete. Everything but the scheduling is redistribute and its adjoint.
//
//   for (auto& layer : model.layers()) fsdp::fully_shard(*layer, mesh["dp"]);
//   fsdp::fully_shard(model, mesh["dp"], {.param_dtype = DType::kBFloat16});

#pragma once

#include <vector>

#include "dtensor/fsdp/options.h"
#include "dtensor/fsdp/stats.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/nn/module.h"

namespace dtensor::fsdp {

// Groups the parameters of `module` that no earlier fully_shard has taken (call it on children
// first, on the root last), and cuts each along dim 0, or the one that options.shard_dim gives,
// over `dims` behind the cuts they have (the level is appended last, with unit 1); a scalar stays
// R. Parameters and buffers on no mesh are replicated first. Options not given are taken from the
// root's: the topmost module that is fully sharded.
//   dims     of the root mesh; a parameter that is R on other mesh dims is one replica per
//            coordinate there, its gradient summed over them, too
//   inputs   with a param_dtype, floating inputs of the module's forward are cast to it
//   calls    all ranks of the mesh run the same groups in the same order: CommError (Mismatch) that
//            names the group where one left it out, at the end of forward or backward at the latest
//   grads    under a backward with {.defer = true} a group keeps its gradients whole, and reduces
//            them once in the next backward without; a parameter of the group that this rank did
//            not use counts as zero
// PlacementError: a second fully_shard of one module; a mesh other than the parameters'; a
// parameter that one of `dims` cuts already.
void fully_shard(nn::Module& module, const MeshSlice& dims, const Options& options = {});

// While `module` computes, the groups of `others` are gathered, in this order, in place of the one
// that is next: forward; and backward. Each costs the memory of one more gathered group; an empty
// list goes back to one that is gathered ahead. PlacementError where one is not fully sharded.
void set_modules_to_forward_prefetch(nn::Module& module, const std::vector<nn::Module*>& others);
void set_modules_to_backward_prefetch(nn::Module& module, const std::vector<nn::Module*>& others);

// By hand, as FSDPModule.unshard and .reshard: issues the gather of `module`'s own group (not those
// of groups below it), which its next forward waits for. What is gathered stays, over forwards and
// backwards, until reshard(), or until the first forward after a parameter was written.
//   calls    every rank of the mesh, outside forward and backward, in the order of other gathers
// PlacementError where the module is not fully sharded.
void unshard(nn::Module& module);
// Frees it, also what stays under Zero::kState. Nothing to do where nothing stays. A backward that
// is still to come gathers again.
void reshard(nn::Module& module);

}  // namespace dtensor::fsdp
