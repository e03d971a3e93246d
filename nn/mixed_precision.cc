#include "dtensor/nn/mixed_precision.h"

#include <memory>
#include <string>

#include "dtensor/base/error.h"
#include "dtensor/ops/ops.h"

namespace dtensor::nn {

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
  module.add_pre_hook_first([&module, param_dtype](const Inputs& inputs) {
    for (const Parameter& p : module.parameters()) {
      const DTensor& value = p.value();
      if (is_floating(value.dtype()) && value.dtype() != param_dtype) {
        p.set_use(cast(value, param_dtype));
      }
    }
    return cast_inputs(inputs, param_dtype);
  });
  module.add_cleanup_hook([&module] {
    for (const Parameter& p : module.parameters()) p.set_use({});
  });
}

}  // namespace dtensor::nn
