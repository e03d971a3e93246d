// Tensor parallelism from outside the model: placements of parameters and redistributes at the
// edges of modules, on one mesh dim.

#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "dtensor/mesh/device_mesh.h"
#include "dtensor/nn/module.h"

namespace dtensor::tp {

// Linear: W S(0), b S(0), each by the unit of the parameter; the input is brought to R, the output
// is S(-1) unless `output` says otherwise.  Embedding: W S(1), output S(-1) -> R.
struct Colwise {
  std::optional<Placement> output = {};
};
// Linear: W S(1) by its unit, b R; the input is brought to S(-1) with that unit, the output P + b
// is brought to `output`: R (all-reduce) or S(1) (reduce-scatter).  Embedding: W S(0), ids R.
struct Rowwise {
  Placement output = Replicate();
};
using Style = std::variant<Colwise, Rowwise>;

// Patterns are full module names with * (any part of one name) and {a,b} (alternatives).
// Parameters and buffers on no mesh are replicated on the root mesh first. Throws ArgumentError
// for a pattern that matches no module, PlacementError after fully_shard, or for a parameter that
// already is placed otherwise.
using Plan = std::vector<std::pair<std::string, Style>>;
void parallelize_module(nn::Module& module, const MeshSlice& dim, const Plan& plan);

// Does a name match a pattern? For other users of the same patterns.
bool matches(const std::string& pattern, const std::string& name);

}  // namespace dtensor::tp
