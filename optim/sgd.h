// SGD with momentum: g' = g + wd p; v = momentum v + g'; p -= lr v (without momentum: lr g').
// State and master copies as AdamW's.

#pragma once

#include <vector>

#include "dtensor/optim/optimizer.h"

namespace dtensor::optim {

struct SGDOptions {
  double lr = 1e-2;
  double momentum = 0.0;
  double weight_decay = 0.0;
};

class SGD : public Optimizer {
 public:
  SGD(const std::vector<nn::Parameter>& parameters, const SGDOptions& options);
  std::vector<StateTensor> state() override;  // "momentum_buffer", where there is momentum
  SGDOptions options;

 protected:
  void update(const nn::Parameter& p, const Tensor& gradient, int64_t count) override;
  std::vector<const ParameterState*> states() const override {
    return {&velocity_, &master_.copies()};
  }

 private:
  ParameterState velocity_{"momentum_buffer"};
  MasterCopies master_;
};

}  // namespace dtensor::optim
