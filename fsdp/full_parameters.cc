#include "dtensor/fsdp/full_parameters.h"

#include "dtensor/tensor/autograd.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/kernels.h"

namespace dtensor::fsdp {
namespace {

// A copy where the whole is the parameter's own memory.
void take_apart(TensorMap& whole, const DTensorMap& parameters) {
  for (auto& [name, tensor] : whole) {
    const DTensor& value = parameters.at(name);
    if (!tensor.defined() || !value.has_local()) continue;
    if (tensor.storage() == value.local_tensor().storage()) tensor = tensor.clone();
  }
}

void write_back(const TensorMap& whole, const DTensorMap& parameters) {
  for (const auto& [name, value] : parameters) {
    if (!value.has_local()) continue;
    const Tensor& tensor = whole.at(name);
    const Tensor& local = value.local_tensor();
    if (!value.mesh().defined()) {
      kernels::copy(tensor, local);
    } else {
      kernels::copy(distribute(tensor, value.mesh(), value.layout()).local_tensor(), local);
    }
  }
}

}  // namespace

void with_full_parameters(nn::Module& module, Access access,
                          const std::function<void(const TensorMap& whole)>& f) {
  const NoGrad no_grad;
  DTensorMap parameters;
  for (const auto& [name, parameter] : module.named_parameters()) {
    parameters.emplace(name, parameter.value().detach());
  }
  TensorMap whole = gather_state(parameters);
  take_apart(whole, parameters);
  f(whole);
  if (access == Access::kWrite) write_back(whole, parameters);
}

}  // namespace dtensor::fsdp
