// Optimizers over parameters of any placement: elementwise on the local pieces, no message.

#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/nn/module.h"

namespace dtensor::optim {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Updates every parameter that has a gradient. PlacementError for a Partial gradient.
  virtual void step() = 0;
  void zero_grad();
  const std::vector<nn::Parameter>& parameters() const { return parameters_; }

  // State tensors, each like its parameter: (state name, parameter, tensor); made if they are not
  // there yet. And the number of steps done. For checkpoints.
  struct StateTensor {
    std::string state;  // "exp_avg"
    nn::Parameter parameter;
    DTensor value;
  };
  virtual std::vector<StateTensor> state() = 0;
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }

 protected:
  explicit Optimizer(std::vector<nn::Parameter> parameters) : parameters_(std::move(parameters)) {}
  std::vector<nn::Parameter> parameters_;
  int64_t steps_ = 0;
};

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
};
// Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019, in PyTorch's order:
// p -= lr wd p; then p -= lr m̂ / (sqrt(v̂) + eps). State in f32.
class AdamW : public Optimizer {
 public:
  AdamW(std::vector<nn::Parameter> parameters, const AdamWOptions& options);
  void step() override;
  std::vector<StateTensor> state() override;
  AdamWOptions options;

 private:
  struct Moments {
    DTensor exp_avg;
    DTensor exp_avg_sq;
  };
  Moments& moments(const nn::Parameter& p);
  std::map<const void*, Moments> moments_;
};

struct SGDOptions {
  double lr = 1e-2;
  double momentum = 0.0;
  double weight_decay = 0.0;
};
class SGD : public Optimizer {
 public:
  SGD(std::vector<nn::Parameter> parameters, const SGDOptions& options);
  void step() override;
  std::vector<StateTensor> state() override;
  SGDOptions options;

 private:
  DTensor& velocity(const nn::Parameter& p);
  std::map<const void*, DTensor> velocity_;
};

struct ClipOptions {
  DeviceMesh mesh = {};    // of the reduction; that of the gradients where not set
  double norm_type = 2.0;  // 1, 2, or infinity
};
// Multiplies every gradient by min(1, max_norm / (norm + 1e-6)) and returns the norm over all of
// them, each element counted once whatever its placement: one all-reduce of one number. Norm in
// f32. Every rank of the mesh calls it. PlacementError for a Partial gradient.
double clip_grad_norm(const std::vector<nn::Parameter>& parameters, double max_norm,
                      const ClipOptions& options = {});

}  // namespace dtensor::optim
