// AdamW: Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019, in PyTorch's
// order: p -= lr wd p; then p -= lr m̂ / (sqrt(v̂) + eps).
// State in f32 (f64 for f64). A 16-bit parameter has an f32 master copy in its state, which is
// what is updated; the parameter is its rounding.

#pragma once

#include <vector>

#include "dtensor/optim/optimizer.h"

namespace dtensor::optim {

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
};

class AdamW : public Optimizer {
 public:
  AdamW(const std::vector<nn::Parameter>& parameters, const AdamWOptions& options);
  std::vector<StateTensor> state() override;  // "exp_avg", "exp_avg_sq"; "master" of 16-bit ones
  AdamWOptions options;                       // may be changed between steps

 protected:
  void update(const nn::Parameter& p, const Tensor& gradient, int64_t count) override;
  std::vector<const ParameterState*> states() const override {
    return {&exp_avg_, &exp_avg_sq_, &master_.copies()};
  }

 private:
  ParameterState exp_avg_{"exp_avg"};
  ParameterState exp_avg_sq_{"exp_avg_sq"};
  MasterCopies master_;
};

}  // namespace dtensor::optim
