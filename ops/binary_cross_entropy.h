// Binary cross entropy of logits against probabilities.

#pragma once

#include "dtensor/ops/loss_reduction.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// log(1 + exp(x)) - x t of every element, which is -t log(s) - (1 - t) log(1 - s) with
// s = sigmoid(x); its sum, or that divided by the global count. x and t of one dtype, with
// broadcasting. P(sum) on every cut dim that the result lacks.
DTensor binary_cross_entropy_with_logits(const DTensor& x, const DTensor& t,
                                         LossReduction reduction = LossReduction::kMean,
                                         CallSite site = CallSite::here());

}  // namespace dtensor
