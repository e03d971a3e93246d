// Cross entropy of logits against class indices.

#pragma once

#include <cstdint>
#include <optional>

#include "dtensor/ops/loss_reduction.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor {

struct CrossEntropyOptions {
  std::optional<int64_t> ignore_index = {};
  // The divisor of a mean. Without it the global number of targets; with an ignore index the number
  // of valid ones, for which the call asks for one all-reduce of a number over the mesh dims that
  // cut them.
  std::optional<int64_t> count = {};
  // Asks for the communicating row with v cut: one all-reduce of the rows' maxima, one of their
  // sums. The rank that owns a target's class contributes its loss.
  bool sharded_classes = false;
  // Mixes the target with the uniform distribution: (1 - label_smoothing) onehot +
  // label_smoothing / v (Szegedy et al., "Rethinking the Inception architecture", CVPR 2016).
  double label_smoothing = 0.0;
  LossReduction reduction = LossReduction::kMean;
};

// logits [...,v], targets [...] of int64 -> scalar: sum of -log softmax(logits)[target] over the
// valid elements, divided by their global count; f32, or f64 where logits are. NaN where no target
// is valid. kSum does not divide; kNone gives [...], 0 where a target is ignored. P(sum) on every
// cut dim that the result lacks; no one reduces the loss before it is read.
DTensor cross_entropy(const DTensor& logits, const DTensor& targets,
                      const CrossEntropyOptions& options = {}, CallSite site = CallSite::here());

struct NllLossOptions {
  std::optional<int64_t> ignore_index = {};
  std::optional<int64_t> count = {};  // the divisor of a mean, as in CrossEntropyOptions
  LossReduction reduction = LossReduction::kMean;
};

// The same of logarithms of probabilities [...,v] that are there already: sum of -x[target]. Of the
// dtype of x; linear in x, whose classes may be cut.
DTensor nll_loss(const DTensor& x, const DTensor& targets, const NllLossOptions& options = {},
                 CallSite site = CallSite::here());

}  // namespace dtensor
