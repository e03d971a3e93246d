// RMS norm on local Tensors: y = x / sqrt(mean(x²) + eps) * w over the last dim (Zhang and
// Sennrich, "Root mean square layer normalization", NeurIPS 2019). x, g: [...,h], strided or empty;
// w: [h]. Results are new and contiguous, of x's dtype: f32, f64, or bf16 (computed in f32, rounded
// once). w may be f32 where x is bf16. ArgumentError otherwise. With r = 1 / sqrt(mean(x²) + eps):
// dx = r (g w - x r² mean(g w x)),  dw = sum over rows of g x r.

#pragma once

#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

Tensor rms_norm(const Tensor& x, const Tensor& w, double eps);

Tensor rms_norm_dx(const Tensor& g, const Tensor& x, const Tensor& w, double eps);
// [h]. Rows are summed in an order fixed by the shape.
Tensor rms_norm_dw(const Tensor& g, const Tensor& x, double eps);

// Both in one pass over g and x; the same bits as the two above.
struct RmsNormGrads {
  Tensor dx;
  Tensor dw;
};
RmsNormGrads rms_norm_backward(const Tensor& g, const Tensor& x, const Tensor& w, double eps);

}  // namespace dtensor::cpu
