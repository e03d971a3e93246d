#include "dtensor/fsdp/fully_shard.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/fsdp/group.h"
#include "dtensor/fsdp/stats.h"

namespace dtensor::fsdp {
namespace {

std::string name_of(const nn::Module& module) {
  return std::string(module.kind()) + " \"" + module.full_name() + "\"";
}

void check_module(nn::Module& module, const MeshSlice& dims, const Options& options) {
  if (!dims.mesh.defined() || dims.dims.empty()) {
    throw ArgumentError("fully_shard: no mesh dim; give a slice as mesh[\"dp\"]");
  }
  for (const auto& dtype : {options.param_dtype, options.reduce_dtype, options.output_dtype}) {
    if (!dtype || is_floating(*dtype)) continue;
    throw ArgumentError("fully_shard: dtype " + std::string(dtensor::name_of(*dtype)) +
                        " is not floating; use bf16 or f32");
  }
  if (module.attached("fsdp") != nullptr) {
    throw PlacementError("fully_shard: " + name_of(module) + " is fully sharded already");
  }
  if (options.zero.value_or(Zero::kParameters) != Zero::kParameters &&
      options.reshard_after_forward.value_or(false)) {
    throw ArgumentError("fully_shard: .reshard_after_forward = true frees what .zero keeps; use " +
                        std::string("Zero::kParameters, or leave it out"));
  }
  if (options.reshard_over) {
    const std::vector<int>& over = options.reshard_over->dims;
    const bool inside =
        options.reshard_over->mesh == dims.mesh && std::ranges::all_of(over, [&](int m) {
          return std::ranges::find(dims.dims, m) != dims.dims.end();
        });
    if (!inside) {
      throw ArgumentError("fully_shard: .reshard_over names a mesh dim that is not sharded over; " +
                          std::string("use some of the dims given to fully_shard"));
    }
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

// The dim of a parameter that is cut.
int dim_of(const nn::Parameter& p, const Options& options) {
  const int ndim = p.value().ndim();
  const int asked = options.shard_dim ? options.shard_dim(p) : 0;
  const int dim = asked < 0 ? asked + ndim : asked;
  if (dim >= 0 && dim < ndim) return dim;
  throw ArgumentError("fully_shard: .shard_dim gave " + std::to_string(asked) + " for \"" +
                      p.name() + "\" of shape " + to_string(p.value().shape()) + "; give 0 to " +
                      std::to_string(ndim - 1));
}

// Where the parameters will lie. A scalar stays whole.
std::vector<Layout> layouts_of(const std::vector<nn::Parameter>& parameters, const MeshSlice& dims,
                               const Options& options) {
  std::vector<Layout> layouts;
  const bool whole = options.zero == Zero::kNothing;
  for (const nn::Parameter& p : parameters) {
    const Layout& now = p.value().layout();
    if (whole || p.value().ndim() == 0) {
      layouts.push_back(now);
      continue;
    }
    const std::vector<Placement> cut(dims.dims.size(), Shard(dim_of(p, options)));
    layouts.push_back(now.with(dims.dims, cut));
  }
  return layouts;
}

Group& sharded(nn::Module& module, const char* call) {
  if (Group* group = group_of(module)) return *group;
  throw PlacementError(std::string(call) + ": " + name_of(module) + " is not fully sharded");
}

std::vector<std::weak_ptr<ScheduledGroup>> groups_of(const std::vector<nn::Module*>& modules,
                                                     const char* call) {
  std::vector<std::weak_ptr<ScheduledGroup>> groups;
  for (nn::Module* m : modules) groups.push_back(sharded(*m, call).weak_from_this());
  return groups;
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
  const std::vector<Layout> layouts = layouts_of(mine, dims, options);
  for (size_t i = 0; i < mine.size(); ++i) {
    if (options.offload != nullptr) mine[i].set_memory(options.offload);
    if (options.offload != nullptr || !(layouts[i] == mine[i].value().layout())) {
      mine[i].place(layouts[i]);
    }
    mine[i].set_gathered_by(name_of(module));
  }
  const auto group = std::make_shared<Group>(module, dims, std::move(mine), options);
  module.attached("fsdp") = group;
  Group* g = group.get();
  module.add_pre_hook_first([g](const nn::Inputs& inputs) { return g->before_forward(inputs); });
  module.add_post_hook([g](const DTensor& y) { return g->after_forward(y); });
  module.add_cleanup_hook([g] { g->clean_up(); });
}

void set_modules_to_forward_prefetch(nn::Module& module, const std::vector<nn::Module*>& others) {
  const char* call = "set_modules_to_forward_prefetch";
  sharded(module, call).forward_prefetch = groups_of(others, call);
}

void set_modules_to_backward_prefetch(nn::Module& module, const std::vector<nn::Module*>& others) {
  const char* call = "set_modules_to_backward_prefetch";
  sharded(module, call).backward_prefetch = groups_of(others, call);
}

void unshard(nn::Module& module) { sharded(module, "unshard").unshard(); }
void reshard(nn::Module& module) { sharded(module, "reshard").reshard(); }

Stats stats() { return *shared_stats(); }

void reset_peak() {
  const auto stats = shared_stats();
  stats->peak_groups = stats->live_groups;
  stats->peak_reductions = stats->live_reductions;
}

}  // namespace dtensor::fsdp
