#include "dtensor/optim/sgd.h"

#include "dtensor/ops/cpu/adamw.h"

namespace dtensor::optim {

SGD::SGD(const std::vector<nn::Parameter>& parameters, const SGDOptions& options)
    : Optimizer(parameters), options(options) {}

void SGD::update(const nn::Parameter& p, const Tensor& gradient, int64_t /*count*/) {
  const cpu::SgdStep step{
      .lr = options.lr, .momentum = options.momentum, .weight_decay = options.weight_decay};
  const Tensor velocity = options.momentum != 0.0 ? velocity_.of(p).local_tensor() : Tensor();
  cpu::sgd_step(master_.begin(p), gradient, velocity, step);
  master_.end(p);
}

std::vector<Optimizer::StateTensor> SGD::state() {
  std::vector<StateTensor> list;
  for (const nn::Parameter& p : parameters()) {
    if (options.momentum != 0.0) velocity_.append_to(list, p);
    master_.append_to(list, p);
  }
  return list;
}

}  // namespace dtensor::optim
