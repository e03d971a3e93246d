#include "dtensor/nn/mixed_precision.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/ops/ops.h"
#include "dtensor/tensor/recompute.h"

namespace dtensor::nn {
namespace {

// What parameters are used as in one forward. Set again around a region of it that is computed
// again; what an enclosing module under mixed_precision had set comes back in between.
class Uses : public RegionScope {
 public:
  Uses(const std::vector<Parameter>& parameters, DType dtype) {
    for (const Parameter& p : parameters) {
      const DTensor& value = p.value();
      if (!is_floating(value.dtype())) continue;
      DTensor use;
      if (value.dtype() != dtype) use = p.use().dtype() == dtype ? p.use() : cast(value, dtype);
      uses_.emplace_back(p, std::move(use));
    }
  }
  void enter() override {
    std::vector<DTensor>& before = before_.emplace_back();
    for (const auto& [p, use] : uses_) {
      before.push_back(p.use().impl() == p.value().impl() ? DTensor() : p.use());
      p.set_use(use);
    }
  }
  void leave() override {
    for (size_t i = 0; i < uses_.size(); ++i) uses_[i].first.set_use(before_.back()[i]);
    before_.pop_back();
  }

 private:
  std::vector<std::pair<Parameter, DTensor>> uses_;
  std::vector<std::vector<DTensor>> before_;
};

using OpenUses = std::vector<std::shared_ptr<Uses>>;

}  // namespace

Inputs cast_inputs(const Inputs& inputs, DType dtype) {
  Inputs out;
  for (const DTensor& x : inputs) {
    const bool other = x.defined() && is_floating(x.dtype()) && x.dtype() != dtype;
    out.push_back(other ? cast(x, dtype) : x);
  }
  return out;
}

void mixed_precision(Module& module, DType param_dtype) {
  if (!is_floating(param_dtype)) {
    throw ArgumentError("mixed_precision: " + std::string(name_of(param_dtype)) +
                        " is not floating; use bf16 or f32");
  }
  for (const auto& [name, parameter] : module.named_parameters()) {
    if (parameter.gathered_by().empty()) continue;
    throw PlacementError("mixed_precision: \"" + name + "\" is gathered by fully_shard; give " +
                         "fsdp::Options{.param_dtype = ...} instead");
  }
  module.attached("mixed_precision") = std::make_shared<DType>(param_dtype);
  const auto open = std::make_shared<OpenUses>();
  module.add_pre_hook_first([&module, param_dtype, open](const Inputs& inputs) {
    const auto uses = std::make_shared<Uses>(module.parameters(), param_dtype);
    uses->enter();
    open->push_back(uses);
    Context::current().slot<RegionScopes>().open.push_back(uses);
    return cast_inputs(inputs, param_dtype);
  });
  module.add_cleanup_hook([open] {
    if (open->empty()) return;  // a hook in front of this one threw
    Context::current().slot<RegionScopes>().open.pop_back();
    open->back()->leave();
    open->pop_back();
  });
}

}  // namespace dtensor::nn
