// A list of parameters, each once.

#pragma once

#include <vector>

#include "dtensor/nn/module.h"

namespace dtensor::optim {

// In the order in which they first stand. Lists put together of parts of a model name a tied
// parameter twice: it is one parameter, with one gradient and one state.
std::vector<nn::Parameter> distinct(const std::vector<nn::Parameter>& parameters);

}  // namespace dtensor::optim
