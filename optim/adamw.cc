#include "dtensor/optim/adamw.h"

#include "dtensor/ops/cpu/adamw.h"

namespace dtensor::optim {

AdamW::AdamW(const std::vector<nn::Parameter>& parameters, const AdamWOptions& options)
    : Optimizer(parameters), options(options) {}

void AdamW::update(const nn::Parameter& p, const Tensor& gradient, int64_t count) {
  const cpu::AdamWStep step{.lr = options.lr,
                            .beta1 = options.beta1,
                            .beta2 = options.beta2,
                            .eps = options.eps,
                            .weight_decay = options.weight_decay,
                            .step = count};
  cpu::adamw_step(master_.begin(p), gradient, exp_avg_.of(p).local_tensor(),
                  exp_avg_sq_.of(p).local_tensor(), step);
  master_.end(p);
}

std::vector<Optimizer::StateTensor> AdamW::state() {
  std::vector<StateTensor> list;
  for (const nn::Parameter& p : parameters()) {
    exp_avg_.append_to(list, p);
    exp_avg_sq_.append_to(list, p);
    master_.append_to(list, p);
  }
  return list;
}

}  // namespace dtensor::optim
