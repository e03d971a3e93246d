// Mean squared error.

#pragma once

#include "dtensor/ops/loss_reduction.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// (a - b)² of every element, with broadcasting; its sum, or that divided by the global count.
// P(sum) on every cut dim that the result lacks.
DTensor mse_loss(const DTensor& a, const DTensor& b, LossReduction reduction = LossReduction::kMean,
                 CallSite site = CallSite::here());

}  // namespace dtensor
