// Rotary position embedding on local Tensors (Su et al., "RoFormer", 2021), halves rotated as in
// Hugging Face's Llama: with x = [x1, x2] cut in the middle of the last dim,
//   y = x cos + [-x2, x1] sin.
// x [b,t,...,d] with even d, strided or empty; cos, sin [t,d], of x's dtype, or f32 where x is of a
// 16-bit one. Results are new and contiguous, of x's dtype: f32, f64, bf16 and f16 (computed in
// f32, rounded once). ArgumentError otherwise. Which positions the rows of the tables stand for is
// the caller's choice.

#pragma once

#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

Tensor rope(const Tensor& x, const Tensor& cos, const Tensor& sin);
// The transpose: dx = g cos + [(g sin)2, -(g sin)1].
Tensor rope_backward(const Tensor& g, const Tensor& cos, const Tensor& sin);

}  // namespace dtensor::cpu
