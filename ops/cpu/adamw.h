// One step of AdamW and of SGD on one local Tensor, in one pass and in place. Elementwise, so the
// bits do not depend on how a parameter is cut. Tensors may be strided or empty.

#pragma once

#include <cstdint>

#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

struct AdamWStep {
  double lr = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  int64_t step = 1;  // of this parameter; 1 for the first
};
// Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019, in PyTorch's order:
//   p -= lr wd p;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g²;
//   p -= lr / (1 - b1^step) * m / (sqrt(v) / sqrt(1 - b2^step) + eps)
// p, g: f32, f64 or bf16, each its own; m, v: f32 (f64 where p is f64). Computed in m's dtype, p
// rounded once.
void adamw_step(const Tensor& p, const Tensor& g, const Tensor& m, const Tensor& v,
                const AdamWStep& step);

struct SgdStep {
  double lr = 0.0;
  double momentum = 0.0;
  double weight_decay = 0.0;
};
// g' = g + wd p;  velocity = momentum velocity + g';  p -= lr velocity. Start with a velocity of
// zeros. Without momentum, velocity may be undefined: p -= lr g'. Dtypes as above.
void sgd_step(const Tensor& p, const Tensor& g, const Tensor& velocity, const SgdStep& step);

}  // namespace dtensor::cpu
