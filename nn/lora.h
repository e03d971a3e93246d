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

// Parameters of `module` that want a gradient.
std::vector<Parameter> trainable_parameters(Module& module);

}  // namespace dtensor::nn
