// Kernels that go along chosen dims one row at a time. Operands may be strided or empty; results
// are new and contiguous. dims: 0..ndim-1, sorted. f32, f64, bf16, f16; positions also of i32 and
// i64; ArgumentError for others.

#pragma once

#include <span>

#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

// i64 [kept dims]: the row-major position, among the elements of `dims`, of the largest (smallest):
// the lowest of several; the first NaN where there is one. ArgumentError over no elements.
Tensor argmax(const Tensor& x, std::span<const int> dims);
Tensor argmin(const Tensor& x, std::span<const int> dims);

// Of x's shape: the product of the other elements along `dims`, computed without a division.
Tensor products_of_others(const Tensor& x, std::span<const int> dims);

}  // namespace dtensor::cpu
