// Ema: an exponential moving average of parameters, placed as they are: nothing is sent, and its
// bits do not depend on the mesh. average = decay average + (1 - decay) parameter, in f32 (f64 of
// f64).

#pragma once

#include <functional>
#include <vector>

#include "dtensor/nn/module.h"
#include "dtensor/optim/optimizer.h"

namespace dtensor::optim {

class Ema {
 public:
  // Starts at the parameters as they are now; make it after the wrappers. One that is listed twice
  // counts once. ArgumentError for a decay outside [0, 1].
  Ema(const std::vector<nn::Parameter>& parameters, double decay);

  // Once a step. PlacementError where a wrapper has placed a parameter otherwise since.
  void update();
  // Runs `f` with the averages, rounded to the parameters' dtype, in the parameters; afterwards,
  // also where `f` or memory failed, they are as they were. For evaluation, or to save them under
  // the plain names.
  void with_averages(const std::function<void()>& f);

  // State "ema": what checkpoint::State{.ema = ...} saves, and loads into, in place.
  std::vector<Optimizer::StateTensor> state();
  double decay;

 private:
  void check_placement(const nn::Parameter& p, const DTensor& average) const;

  std::vector<nn::Parameter> parameters_;
  std::vector<DTensor> averages_;  // of parameters_, in their order
};

}  // namespace dtensor::optim
