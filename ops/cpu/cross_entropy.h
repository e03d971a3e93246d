// The pieces of softmax cross entropy on local logits [...,v] that hold the classes [begin, end):
// with max and sum of a row taken over all classes (all-reduced between ranks where they are cut),
//   loss of a row = log(sum) + max - logit of its target,   p = exp(x - max) / sum.
// logits: f32, f64, bf16, strided or empty; targets [...] of i64 global classes. Statistics and the
// loss are f32, or f64 where logits are f64. Results are new and contiguous.

#pragma once

#include <cstdint>
#include <optional>

#include "dtensor/base/cut.h"
#include "dtensor/ops/cpu/softmax.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

struct ClassPart {
  Range classes;                             // the local logits' classes: size() is v
  std::optional<int64_t> ignore_index = {};  // rows with this target count nothing
  // Mixes the target with the uniform distribution over all `total` classes, of which the local
  // ones count here: (1 - smoothing) onehot + smoothing / total.
  double smoothing = 0.0;
  int64_t total = 0;
};

// The number of targets that are not ignored.
int64_t count_valid(const Tensor& targets, std::optional<int64_t> ignore_index);

// A scalar: the sum of the losses of the rows whose target is among the local classes and not
// ignored, times `factor` (1 / the global count for a mean). Summed in double. With smoothing also
// the local classes' part of every row that is not ignored.
Tensor cross_entropy_loss(const Tensor& logits, const SoftmaxStats& stats, const Tensor& targets,
                          const ClassPart& part, double factor);

// [...]: the same of every row by itself, 0 where it is ignored.
Tensor cross_entropy_losses(const Tensor& logits, const SoftmaxStats& stats, const Tensor& targets,
                            const ClassPart& part);

// [...,v], of the logits' dtype: (p - target distribution) * factor; 0 in ignored rows. A factor is
// (gradient of the loss) / count: a scalar, or one for each row.
Tensor cross_entropy_backward(const Tensor& logits, const SoftmaxStats& stats,
                              const Tensor& targets, const ClassPart& part, const Tensor& factors);
inline Tensor cross_entropy_backward(const Tensor& logits, const SoftmaxStats& stats,
                                     const Tensor& targets, const ClassPart& part, double factor) {
  return cross_entropy_backward(logits, stats, targets, part,
                                Tensor::full({}, factor, DType::kFloat64));
}

}  // namespace dtensor::cpu
