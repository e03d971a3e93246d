// The pieces of softmax cross entropy on local logits [...,v] that hold the classes [begin, end):
// with max and sum of a row taken over all classes (all-reduced between ranks where they are cut),
//   loss of a row = log(sum) + max - logit of its target,   p = exp(x - max) / sum.
// logits: f32, f64, bf16, strided or empty; targets [...] of i64 global classes. Statistics and the
// loss are f32, or f64 where logits are f64. Results are new and contiguous.

#pragma once

#include <cstdint>
#include <optional>

#include "dtensor/base/cut.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

// [...]: the largest local logit; -inf where v = 0.
Tensor row_max(const Tensor& logits);
// [...]: sum over the local classes of exp(x - max).
Tensor row_sum_exp(const Tensor& logits, const Tensor& max);

// Both at once, for classes that are not cut.
struct SoftmaxStats {
  Tensor max;
  Tensor sum;
};
SoftmaxStats softmax_stats(const Tensor& logits);

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

// [...,v], of the logits' dtype: (p - target distribution) * factor; 0 in ignored rows. factor is
// (gradient of the loss) / count.
Tensor cross_entropy_backward(const Tensor& logits, const SoftmaxStats& stats,
                              const Tensor& targets, const ClassPart& part, double factor);

}  // namespace dtensor::cpu
