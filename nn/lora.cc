#include "dtensor/nn/lora.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "dtensor/base/error.h"
#include "dtensor/nn/deferred_init.h"
#include "dtensor/nn/layers.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tensor/kernels.h"
#include "dtensor/tensor/state_dict.h"

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

namespace {

// Of a merged Linear, attached to it.
struct Base {
  Tensor before;  // this rank's piece of the weight; undefined where it has none
  std::shared_ptr<Storage> storage;
  uint64_t version = 0;
};

// The whole model counts, of which `module` may be a part.
void refuse_tied(Module& module, const std::vector<Linear*>& linears) {
  Module* top = &module;
  while (top->parent() != nullptr) top = top->parent();
  std::map<const void*, std::vector<std::string>> owners;
  for (const auto& [name, m] : top->named_modules()) {
    for (const auto& [own, p] : m->own_parameters()) {
      owners[p.id()].push_back(name.empty() ? own : name + "." + own);
    }
  }
  for (const Linear* linear : linears) {
    const auto& names = owners[linear->weight.id()];
    if (names.size() < 2) continue;
    throw ArgumentError(
        "merge_adapters: \"" + names[0] + "\" and \"" + names[1] +
        "\" are one tied parameter; what is merged into it would change both. Leave "
        "the Linear out of LoraOptions::linears, or do not merge");
  }
}

// By number and "a" or "b"; those of other ranks' meshes are left out.
TensorMap gather_adapters(const std::vector<Linear*>& linears) {
  std::vector<DTensorMap> by_mesh;  // in the order of the linears, which all ranks have
  const auto add = [&](const std::string& name, const DTensor& t) {
    if (t.mesh().defined() && !t.mesh().coordinate()) return;
    auto it = std::ranges::find_if(
        by_mesh, [&](const DTensorMap& m) { return m.begin()->second.mesh() == t.mesh(); });
    if (it == by_mesh.end()) it = by_mesh.insert(it, DTensorMap());
    it->emplace(name, t.detach());
  };
  for (size_t i = 0; i < linears.size(); ++i) {
    add(std::to_string(i) + "a", linears[i]->lora_a.value());
    add(std::to_string(i) + "b", linears[i]->lora_b.value());
  }
  TensorMap whole;
  for (const DTensorMap& adapters : by_mesh) whole.merge(gather_state(adapters));
  return whole;
}

std::vector<Linear*> adapted(Module& module, const char* call, bool merged) {
  std::vector<Linear*> found;
  for (Linear* linear : linears_of(module, {})) {
    if (!linear->lora_a.defined()) continue;
    if (linear->is_merged() == merged) {
      found.push_back(linear);
    } else if (!merged) {
      throw ArgumentError(std::string(call) + ": the adapters of \"" + linear->full_name() +
                          "\" are merged already");
    }
  }
  if (found.empty()) {
    throw ArgumentError(std::string(call) + ": no Linear has " +
                        (merged ? "merged adapters" : "adapters; call nn::add_lora"));
  }
  return found;
}

// scale B A in the box of this rank's piece.
Tensor part_of(const Linear& linear, const Tensor& a, const Tensor& b) {
  const DTensor& w = linear.weight.value();
  const DType dtype = w.dtype() == DType::kFloat64 ? w.dtype() : DType::kFloat32;
  const Box box = w.mesh().defined() ? w.layout().box(*w.mesh().coordinate())
                                     : Box{Shape::filled(2, 0), w.shape()};
  const Tensor rows = b.narrow(0, box.offset[0], box.size[0]).to(dtype).contiguous();
  const Tensor columns = a.narrow(1, box.offset[1], box.size[1]).to(dtype).contiguous();
  return mul(matmul(DTensor(rows), DTensor(columns)), linear.low_rank_scale()).local_tensor();
}

// `t`, of f32 or f64, rounded into `weight`.
void write(const Tensor& t, const Tensor& weight) {
  t.dtype() == weight.dtype() ? kernels::copy(t, weight) : kernels::cast(t, weight);
}

Base add_adapters(Linear& linear, const Tensor& a, const Tensor& b) {
  const DTensor& value = linear.weight.value();
  if (!value.has_local()) return {};
  const Tensor& weight = value.local_tensor();
  Base base;
  base.before = weight.clone();
  const Tensor part = part_of(linear, a, b);
  const Tensor sum =
      base.before.dtype() == part.dtype() ? base.before.clone() : base.before.to(part.dtype());
  kernels::add(sum, part, sum);
  write(sum, weight);
  base.storage = weight.storage();
  base.version = weight.storage()->version();
  return base;
}

}  // namespace

int merge_adapters(Module& module) {
  const NoGrad no_grad;
  const std::vector<Linear*> linears = adapted(module, "merge_adapters", false);
  refuse_tied(module, linears);
  const TensorMap whole = gather_adapters(linears);
  for (size_t i = 0; i < linears.size(); ++i) {
    const auto a = whole.find(std::to_string(i) + "a");
    const auto b = whole.find(std::to_string(i) + "b");
    const bool is_here = a != whole.end() && b != whole.end();
    linears[i]->attached("lora") =
        std::make_shared<Base>(is_here ? add_adapters(*linears[i], a->second, b->second) : Base{});
    linears[i]->set_merged(true);
  }
  return static_cast<int>(linears.size());
}

int unmerge_adapters(Module& module) {
  const std::vector<Linear*> linears = adapted(module, "unmerge_adapters", true);
  const auto base_of = [](Linear* linear) {
    return static_cast<const Base*>(linear->attached("lora").get());
  };
  for (Linear* linear : linears) {
    const Base* base = base_of(linear);
    if (base->storage == nullptr) continue;
    const auto& now = linear->weight.value().local_tensor().storage();
    if (now == base->storage && now->version() == base->version) continue;
    throw ArgumentError("unmerge_adapters: \"" + linear->weight.name() +
                        "\" was written, or placed otherwise, since its adapters were merged");
  }
  for (Linear* linear : linears) {
    const Base* base = base_of(linear);
    if (base->storage != nullptr)
      kernels::copy(base->before, linear->weight.value().local_tensor());
    linear->attached("lora") = nullptr;
    linear->set_merged(false);
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
