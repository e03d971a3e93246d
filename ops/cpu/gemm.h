// Matrix products on local Tensors: oneDNN for f32, bf16 and by way of f32 for f16 (accumulated in
// f32, rounded once), an own blocked product for f64, and own loops for small f32 products and for
// one row by a weight.
// Operands may be strided: transposed views and rows with a pitch are read in place, any other
// layout is copied first. An empty inner dim gives zeros. Results are new and contiguous.
// Work is cut into panels by the shapes alone and each panel runs on one thread of the Context's
// ThreadPool: the same bits for every number of threads, on one machine.
// ArgumentError where shapes do not fit or dtypes differ or are none of f32, f64, bf16, f16.

#pragma once

#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

// [m,k] x [k,n] -> [m,n], or [...,m,k] x [...,k,n] -> [...,m,n] with equal leading dims.
Tensor matmul(const Tensor& a, const Tensor& b);

// x [...,k], w [n,k] -> [...,n]: x wᵀ.
Tensor linear(const Tensor& x, const Tensor& w);

// The gradients of linear for g [...,n]: of x, [...,k] = g w; and of w, [n,k] = gᵀ x, over all
// leading dims.
Tensor linear_dx(const Tensor& g, const Tensor& w);
Tensor linear_dw(const Tensor& g, const Tensor& x);

// dw += gᵀ x, in place. dw [n,k] is contiguous, of the dtype of g and x, or f32 where they are
// bf16 (gradients accumulated over micro-batches without rounding).
void linear_dw_add(const Tensor& g, const Tensor& x, const Tensor& dw);

}  // namespace dtensor::cpu
