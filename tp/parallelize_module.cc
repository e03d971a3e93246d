#include "dtensor/tp/parallelize_module.h"

#include <string_view>

#include "dtensor/base/error.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tp/matches.h"

namespace dtensor::tp {
namespace {

// Brings one mesh dim of `x` to a placement; a new cut gets the unit (0: that of an equal cut, or
// 1).
DTensor bring(const DTensor& x, int m, Placement wanted, int64_t unit, CallSite site) {
  Placement placement = wanted;
  if (wanted.is_shard()) placement = Shard(normalize_dim(wanted.dim(), x.ndim(), "style"));
  return redistribute(x, x.layout().with(m, placement, unit), RedistributeOptions{.site = site});
}

// The module that a style stands at, and what its messages say of it.
struct Place {
  std::string style;  // "Rowwise"
  std::string name;
  nn::Module* module;
  int m;  // the mesh dim
  std::string dim_name;
  CallSite site;

  std::string here() const { return "tp::" + style + " at \"" + name + "\": "; }
};

bool is_embedding(const Place& place) { return place.module->kind() == "Embedding"; }

void cut_parameter(const Place& place, const nn::Parameter& p, int d) {
  const Layout& now = p.value().layout();
  const int64_t unit = p.unit(d);
  const Layout wanted = now.with(place.m, Shard(d), unit);
  if (wanted == now) return;  // of a tied parameter: cut by its other module
  const std::string found = place.here() + "parameter \"" + p.name() + "\" is " + to_string(now);
  if (!now.placement(place.m).is_replicate()) {
    throw PlacementError(found + ", wanted S(" + std::to_string(d) + ") with unit " +
                         std::to_string(unit) + " on \"" + place.dim_name +
                         "\"; give both uses of a tied parameter styles that agree");
  }
  if (!p.gathered_by().empty() || !now.spec().levels(d).empty()) {
    throw PlacementError(found + "; call parallelize_module before fully_shard");
  }
  p.place(wanted);
}

// What a Linear cut by input columns wants: its input cut as those columns. Slices an R input (no
// message), reduces a P one, and refuses one that is cut there with other boundaries.
DTensor cut_like_columns(const Place& place, const nn::Parameter& weight, const DTensor& x) {
  const int last = x.ndim() - 1;
  const Layout& w = weight.value().layout();
  const Level* level = w.spec().level(place.m);
  const bool is_cut = x.layout().placement(place.m) == Shard(last);
  if (!is_cut) return bring(x, place.m, Shard(last), level->unit, place.site);
  // Other mesh dims may cut the weight's columns no more than the input's last dim.
  if (!cut_alike(x.layout(), last, w, 1)) {
    const Level* found = x.spec().level(place.m);
    throw PlacementError(place.here() + "the input " + to_string(x.layout()) + " is cut on \"" +
                         place.dim_name + "\" in units of " + std::to_string(found->unit) +
                         ", the weight's columns in units of " + std::to_string(level->unit) +
                         "; a style does not move S(d) to S(d). Give the layer before it "
                         ".out_unit = " +
                         std::to_string(level->unit) +
                         ", or this one .in_unit = " + std::to_string(found->unit));
  }
  return x;
}

// Adapters of a Linear (nn/lora.h) are cut with its weight: lora_b by rows, lora_a by columns. The
// rank between them stays whole: cut in both it would need a sum of its own.
bool has_columns_only(std::string_view name) { return name == "lora_a"; }

void add_output_hook(const Place& place, Placement output) {
  place.module->add_post_hook(
      [place, output](const DTensor& y) { return bring(y, place.m, output, 0, place.site); });
}

void apply(const Colwise& style, const Place& place) {
  const int d = is_embedding(place) ? 1 : 0;
  for (const auto& [name, p] : place.module->own_parameters()) {
    if (!has_columns_only(name)) cut_parameter(place, p, d);
  }
  if (is_embedding(place)) {
    add_output_hook(place, style.output.value_or(Replicate()));
    return;
  }
  place.module->add_pre_hook([place](const nn::Inputs& inputs) {
    nn::Inputs out = inputs;
    out[0] = bring(out[0], place.m, Replicate(), 0, place.site);
    return out;
  });
  if (style.output) add_output_hook(place, *style.output);
}

void apply(const Rowwise& style, const Place& place) {
  const nn::Parameter weight = place.module->own_parameters().front().second;
  cut_parameter(place, weight, is_embedding(place) ? 0 : 1);
  for (const auto& [name, p] : place.module->own_parameters()) {
    if (has_columns_only(name)) cut_parameter(place, p, 1);
  }
  if (!is_embedding(place)) {
    place.module->add_pre_hook([place, weight](const nn::Inputs& inputs) {
      nn::Inputs out = inputs;
      out[0] = cut_like_columns(place, weight, out[0]);
      return out;
    });
  }
  add_output_hook(place, style.output);
}

void apply(const PrepareInput& style, const Place& place) {
  place.module->add_pre_hook([place, wanted = style.inputs](const nn::Inputs& inputs) {
    nn::Inputs out = inputs;
    for (size_t i = 0; i < wanted.size() && i < out.size(); ++i) {
      if (wanted[i]) out[i] = bring(out[i], place.m, *wanted[i], 0, place.site);
    }
    return out;
  });
}

std::string name_of(const Style& style) {
  constexpr const char* kNames[] = {"Colwise", "Rowwise", "PrepareInput"};
  return kNames[style.index()];
}

std::string some_names(const std::vector<std::pair<std::string, nn::Module*>>& modules) {
  constexpr size_t kMost = 8;
  std::string out;
  for (size_t i = 0; i < modules.size() && i < kMost; ++i) {
    out += (i == 0 ? "\"" : ", \"") + modules[i].first + "\"";
  }
  return out;
}

// Which modules get which styles; what cannot be is found before anything changes.
std::vector<std::pair<Place, Style>> matched(nn::Module& module, const Plan& plan,
                                             const MeshSlice& dim, CallSite site) {
  std::vector<std::pair<Place, Style>> out;
  const int m = dim.dims[0];
  const std::string dim_name = dim.mesh.layout().name(m);
  const auto modules = module.named_modules();
  for (const auto& [pattern, style] : plan) {
    const size_t before = out.size();
    for (const auto& [name, mod] : modules) {
      if (!matches(pattern, name)) continue;
      const bool has_style = std::holds_alternative<PrepareInput>(style) ||
                             mod->kind() == "Linear" || mod->kind() == "Embedding";
      const Place place{name_of(style), name, mod, m, dim_name, site};
      if (!has_style) {
        throw ArgumentError(place.here() + "pattern \"" + pattern + "\" matches a module of kind " +
                            std::string(mod->kind()) +
                            "; Colwise and Rowwise are for Linear and "
                            "Embedding");
      }
      out.emplace_back(place, style);
    }
    if (out.size() == before) {
      throw ArgumentError("parallelize_module: pattern \"" + pattern +
                          "\" matches no module; the first names are " + some_names(modules));
    }
  }
  return out;
}

}  // namespace

void parallelize_module(nn::Module& module, const MeshSlice& dim, const Plan& plan, CallSite site) {
  if (dim.dims.size() != 1) {
    throw ArgumentError("parallelize_module: a slice of " + std::to_string(dim.dims.size()) +
                        " mesh dims; give one, as mesh[\"tp\"]");
  }
  const auto places = matched(module, plan, dim, site);
  for (const auto& [place, style] : places) {
    for (const auto& [name, p] : place.module->own_parameters()) {
      if (p.gathered_by().empty()) continue;
      throw PlacementError(place.here() + "parameter \"" + p.name() + "\" belongs to " +
                           p.gathered_by() + "; call parallelize_module before fully_shard");
    }
  }
  nn::replicate(module, dim.mesh);
  for (const auto& [place, style] : places) {
    std::visit([&place = place](const auto& s) { apply(s, place); }, style);
  }
}

}  // namespace dtensor::tp
