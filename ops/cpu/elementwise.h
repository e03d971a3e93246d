// Fused elementwise kernels on local Tensors, in one pass over memory. Operands may be strided or
// empty; results are new and contiguous. f32, f64, bf16 (computed in f32, rounded once);
// ArgumentError for others, for operands of two dtypes and for shapes that do not fit.

#pragma once

#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

// silu(a) b, for a and b of one shape, and its gradients, in one pass each.
Tensor silu_mul(const Tensor& a, const Tensor& b);
struct SiluMulGrads {
  Tensor da;
  Tensor db;
};
SiluMulGrads silu_mul_backward(const Tensor& g, const Tensor& a, const Tensor& b);

}  // namespace dtensor::cpu
