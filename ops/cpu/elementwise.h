// Elementwise kernels on local Tensors. Operands may be strided or empty; results are new and
// contiguous. bf16 is computed in f32 and rounded once.
// Dtypes: f32, f64, bf16; neg, add, sub, mul, scale and add_scalar also i32 and i64 (wrapping).
// ArgumentError for others, for operands of two dtypes and for shapes that do not broadcast.

#pragma once

#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

// The common shape of a and b aligned from the right: dims are equal, or one of them is 1 or
// absent (1 against 0 gives 0). ArgumentError naming both shapes otherwise.
Shape broadcast_shape(const Shape& a, const Shape& b);

// With broadcasting.
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);

// x * factor and x + term; the number is first rounded to the type computed in (f32, f64 or the
// integer).
Tensor scale(const Tensor& x, double factor);
Tensor add_scalar(const Tensor& x, double term);

Tensor neg(const Tensor& x);
Tensor exp(const Tensor& x);   // f32: at most 1 ulp off in the normal range; inf, 0 and NaN as in C
Tensor relu(const Tensor& x);  // NaN stays
Tensor silu(const Tensor& x);  // x / (1 + exp(-x))

// Gradients, for g of x's shape: g where x > 0, else 0; g s (1 + x (1 - s)) with s = sigmoid(x).
Tensor relu_backward(const Tensor& g, const Tensor& x);
Tensor silu_backward(const Tensor& g, const Tensor& x);

// silu(a) b, for a and b of one shape, and its gradients, in one pass each.
Tensor silu_mul(const Tensor& a, const Tensor& b);
struct SiluMulGrads {
  Tensor da;
  Tensor db;
};
SiluMulGrads silu_mul_backward(const Tensor& g, const Tensor& a, const Tensor& b);

// y [...,n] += bias [n], in place; y is contiguous.
void add_bias(const Tensor& y, const Tensor& bias);

}  // namespace dtensor::cpu
