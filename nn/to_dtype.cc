#include "dtensor/nn/to_dtype.h"

#include <string>

#include "dtensor/base/error.h"
#include "dtensor/nn/deferred_init.h"
#include "dtensor/ops/cast.h"
#include "dtensor/tensor/autograd.h"

namespace dtensor::nn {
namespace {

DTensor described(const Parameter& p, DType dtype) {
  const DTensor& value = p.value();
  const Tensor local = internal::describe(p, value.local_tensor().shape(), dtype);
  return value.mesh().defined() ? DTensor(local, value.layout(), value.mesh()) : DTensor(local);
}

}  // namespace

void to_dtype(Module& module, DType dtype) {
  if (!is_floating(dtype)) {
    throw ArgumentError("to_dtype: " + std::string(name_of(dtype)) +
                        " is not floating; use bf16 or f32");
  }
  for (const auto& [name, parameter] : module.named_parameters()) {
    if (parameter.gathered_by().empty()) continue;
    throw PlacementError("to_dtype: \"" + name +
                         "\" is gathered by fully_shard; call it before fully_shard");
  }
  const NoGrad no_grad;
  for (const Parameter& p : module.parameters()) {
    DTensor& value = p.value();
    if (!is_floating(value.dtype()) || value.dtype() == dtype) continue;
    value.replace(is_described(value) ? described(p, dtype) : cast(value, dtype));
  }
}

}  // namespace dtensor::nn
