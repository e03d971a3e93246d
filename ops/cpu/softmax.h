// Softmax over the last dim of local rows [...,v], which may hold part of the classes: with max and
// sum of a row taken over all classes (all-reduced between ranks where they are cut),
//   softmax = exp(x - max) / sum,   log softmax = x - max - log(sum).
// x: f32, f64, bf16, strided or empty. Statistics [...] are f32, or f64 where x is f64. Results are
// new and contiguous, of x's dtype. ArgumentError otherwise.

#pragma once

#include <cstdint>

#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

// [...]: the largest local element; -inf where v = 0.
Tensor row_max(const Tensor& x);
// [...]: sum over the local classes of exp(x - max).
Tensor row_sum_exp(const Tensor& x, const Tensor& max);

// Both at once, for classes that are not cut.
struct SoftmaxStats {
  Tensor max;
  Tensor sum;
};
SoftmaxStats softmax_stats(const Tensor& x);

// The logarithm goes with the maximum taken off, which would swallow its digits.
enum class SoftmaxForm : uint8_t { kPlain, kLog };
Tensor softmax(const Tensor& x, const SoftmaxStats& stats, SoftmaxForm form);

// Gradients from y, the result. `dot` [...] is the sum over all classes of g y, or of g for the
// logarithm: dx = y (g - dot), and g - exp(y) dot.
Tensor softmax_dot(const Tensor& g, const Tensor& y, SoftmaxForm form);
Tensor softmax_backward(const Tensor& g, const Tensor& y, const Tensor& dot, SoftmaxForm form);

}  // namespace dtensor::cpu
