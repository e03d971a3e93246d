// Low-rank adapters (Hu et al., "LoRA: Low-rank adaptation of large language models", ICLR 2022,
// section 4.1): a Linear's y = W x + b becomes W x + b + scale B (A x), with A [rank, in] and
// B [out, rank] trained and everything else frozen. B starts at 0, so that at first nothing
// changes.
//
//   nn::add_lora(model, {.rank = 8, .linears = {"q_proj", "v_proj"}});   // before fully_shard
//   fsdp::fully_shard(...);             // the base is gathered, the adapters also reduced
//   optim::AdamW opt(nn::trainable_parameters(model), {.lr = 1e-4});

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dtensor/nn/module.h"

namespace dtensor::nn {

struct LoraOptions {
  int64_t rank = 8;
  double scale = 2.0;                     // alpha / rank of the paper
  std::vector<std::string> linears = {};  // last parts of names; every Linear where empty
  uint64_t seed = 0;                      // of A: normal(0, 1/rank), keyed by its full name
};

// Freezes every parameter of `module` and adds adapters, named "<linear>.lora_a" and ".lora_b", to
// the Linears below it. Returns how many it added to. ArgumentError where that is none, for a rank
// below 1, or for a Linear that has some already; PlacementError after fully_shard. Of a Linear on
// a mesh A is cut as the weight's columns are and B as its rows, R elsewhere: what styles make of
// adapters that are there before them. Adapters without memory (DeferredInit) get their numbers
// from a checkpoint, or init_normal.
int add_lora(Module& module, const LoraOptions& options = {});

// Adds scale B A to the weights of the Linears below `module` that have adapters, so that a forward
// costs what it did without: for generation, or to export the weights. Parameters may be placed in
// any way: each rank updates its piece. In f32 (f64 of f64), rounded to the weight's dtype.
//   calls    every rank of the parameters' mesh, outside forward; gathers the adapters, which are
//            small, in as few calls as they need
//   memory   a copy of this rank's pieces of these weights, until unmerge_adapters
//   then     a forward that would train the adapters is an error. A checkpoint has both the
//            adapters and the weights that hold them: save it for training unmerged
// Returns how many it merged. ArgumentError where there are none, one is merged already, or the
// weight of one is tied: another module would change with it.
int merge_adapters(Module& module);
// Puts back the weights as they were, bit by bit. ArgumentError where none is merged, or a weight
// was written since.
int unmerge_adapters(Module& module);

// Parameters of `module` that want a gradient.
std::vector<Parameter> trainable_parameters(Module& module);

}  // namespace dtensor::nn
