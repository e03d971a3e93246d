#include "dtensor/nn/lora.h"

#include <algorithm>

#include "dtensor/base/error.h"
#include "dtensor/nn/deferred_init.h"
#include "dtensor/nn/layers.h"

namespace dtensor::nn {
namespace {

// "q_proj" of "model.layers.0.self_attn.q_proj".
std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }

std::vector<Linear*> linears_of(Module& module, const std::vector<std::string>& wanted) {
  std::vector<Linear*> found;
  for (const auto& [name, m] : module.named_modules()) {
    auto* linear = dynamic_cast<Linear*>(m);
    if (linear == nullptr) continue;
    const std::string own = last_part(linear->full_name());
    if (wanted.empty() || std::ranges::find(wanted, own) != wanted.end()) found.push_back(linear);
  }
  return found;
}

void check(const std::vector<Linear*>& linears, const LoraOptions& options) {
  if (options.rank < 1) {
    throw ArgumentError("add_lora: a rank of " + std::to_string(options.rank) + "; give 1 or more");
  }
  if (linears.empty()) {
    throw ArgumentError(
        "add_lora: the module has no Linear of these names; give the last parts of "
        "their names, as \"q_proj\", or none for all");
  }
  for (const Linear* linear : linears) {
    if (linear->lora_a.defined()) {
      throw ArgumentError("add_lora: \"" + linear->full_name() + "\" has adapters already");
    }
    if (!linear->weight.gathered_by().empty()) {
      throw PlacementError("add_lora: \"" + linear->full_name() + "\" belongs to " +
                           linear->weight.gathered_by() + "; add adapters before fully_shard");
    }
  }
}

}  // namespace

int add_lora(Module& module, const LoraOptions& options) {
  const std::vector<Linear*> linears = linears_of(module, options.linears);
  check(linears, options);
  for (const Parameter& p : module.parameters()) {
    if (is_floating(p.value().dtype())) p.value().set_requires_grad(false);
  }
  for (Linear* linear : linears) {
    linear->add_low_rank(options.rank, options.scale);
    if (is_described(linear->lora_a.value())) continue;  // materialize() makes it 0
    const double std = 1.0 / static_cast<double>(options.rank);
    fill_normal(linear->lora_a.value(), std, options.seed, linear->lora_a.name());
  }
  return static_cast<int>(linears.size());
}

std::vector<Parameter> trainable_parameters(Module& module) {
  std::vector<Parameter> wanted;
  for (const Parameter& p : module.parameters()) {
    if (p.value().requires_grad()) wanted.push_back(p);
  }
  return wanted;
}

}  // namespace dtensor::nn
