#include "dtensor/fsdp/fully_shard.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/fsdp/group.h"
#include "dtensor/fsdp/live_groups.h"

namespace dtensor::fsdp {
namespace {

std::string name_of(const nn::Module& module) {
  return std::string(module.kind()) + " \"" + module.full_name() + "\"";
}

void check_module(nn::Module& module, const MeshSlice& dims, const Options& options) {
  if (!dims.mesh.defined() || dims.dims.empty()) {
    throw ArgumentError("fully_shard: no mesh dim; give a slice as mesh[\"dp\"]");
  }
  for (const auto& dtype : {options.param_dtype, options.reduce_dtype}) {
    if (!dtype || is_floating(*dtype)) continue;
    throw ArgumentError("fully_shard: dtype " + std::string(dtensor::name_of(*dtype)) +
                        " is not floating; use bf16 or f32");
  }
  if (module.attached("fsdp") != nullptr) {
    throw PlacementError("fully_shard: " + name_of(module) + " is fully sharded already");
  }
  std::vector<nn::Module*> related;
  for (nn::Module* m = module.parent(); m != nullptr; m = m->parent()) related.push_back(m);
  for (const auto& [name, m] : module.named_modules()) related.push_back(m);
  for (nn::Module* m : related) {
    if (m->attached("mixed_precision") == nullptr) continue;
    throw PlacementError("fully_shard: " + name_of(*m) +
                         " has mixed_precision; give fsdp::Options{.param_dtype = ...} instead");
  }
}

void check_parameter(const nn::Parameter& p, const MeshSlice& dims) {
  for (const int m : dims.dims) {
    if (p.value().layout().placement(m).is_replicate()) continue;
    throw PlacementError("fully_shard: parameter \"" + p.name() + "\" is " +
                         to_string(p.value().layout()) + ", cut on \"" +
                         dims.mesh.layout().name(m) + "\" already; name another mesh dim");
  }
}

}  // namespace

void fully_shard(nn::Module& module, const MeshSlice& dims, const Options& options) {
  check_module(module, dims, options);
  nn::replicate(module, dims.mesh);
  std::vector<nn::Parameter> mine;
  for (const nn::Parameter& p : module.parameters()) {
    if (!p.gathered_by().empty()) continue;
    check_parameter(p, dims);
    mine.push_back(p);
  }
  const std::vector<Placement> cut(dims.dims.size(), Shard(0));
  for (const nn::Parameter& p : mine) {
    if (p.value().ndim() > 0) p.place(p.value().layout().with(dims.dims, cut));
    p.set_gathered_by(name_of(module));
  }
  const auto group = std::make_shared<Group>(module, dims, std::move(mine), options);
  module.attached("fsdp") = group;
  Group* g = group.get();
  module.add_pre_hook_first([g](const nn::Inputs& inputs) { return g->before_forward(inputs); });
  module.add_post_hook([g](const DTensor& y) { return g->after_forward(y); });
  module.add_cleanup_hook([g] { g->clean_up(); });
}

Stats stats() {
  const auto live = LiveGroups::current();
  return {live->now, live->peak};
}

void reset_peak() {
  const auto live = LiveGroups::current();
  live->peak = live->now;
}

}  // namespace dtensor::fsdp
