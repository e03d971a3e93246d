// Tensor parallelism from outside the model: placements of parameters and redistributes at the
// edges of modules, on one mesh dim. Placements below are on that dim only; other dims stay.
//
//   style                      parameters        input        output
//   Colwise of a Linear        W S(0), b S(0)    R            S(-1), or `output`
//   Rowwise of a Linear        W S(1), b R       S(-1) as W   P + b, then `output`: R or S(1)
//   Rowwise of an Embedding    W S(0)            ids R        P, then `output`
//   Colwise of an Embedding    W S(1)            ids R        S(-1), then `output`, R by default
//   PrepareInput of any        -                 as given     -
//
// Adapters (nn/lora.h) are cut with their Linear, the rank between them whole: Colwise lora_a R and
// lora_b S(0), Rowwise lora_a S(1) and lora_b R. They may be added before or after.
// Cuts keep the parameter's units together (nn::Parameter::unit). A style never moves S(d) to S(d)
// with other boundaries: PlacementError naming the unit.

#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "dtensor/base/call_site.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/nn/module.h"

namespace dtensor::tp {

struct Colwise {
  std::optional<Placement> output = {};
};
struct Rowwise {
  Placement output = Replicate();
};
// The inputs of a module, one entry per input from the left; those without a placement stay. With
// it a block gathers a sequence shard once: PrepareInput{{Replicate()}}.
struct PrepareInput {
  std::vector<std::optional<Placement>> inputs;
};
using Style = std::variant<Colwise, Rowwise, PrepareInput>;

// Patterns are module names from `module` on, with * (any part of one name) and {a,b}
// (alternatives). Parameters and buffers on no mesh are replicated on the root mesh first.
//   dim   a slice of one dim of the root mesh
//   site  what the ledger shows for the moves at the edges
// Throws ArgumentError for a pattern that matches no module or one that has no such style, before
// anything is placed; PlacementError after fully_shard, or for a parameter that is cut on `dim`
// already in another way.
using Plan = std::vector<std::pair<std::string, Style>>;
void parallelize_module(nn::Module& module, const MeshSlice& dim, const Plan& plan,
                        CallSite site = CallSite::here());

}  // namespace dtensor::tp
