// Running sums along a dim of a local Tensor.

#pragma once

#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

// Element i of the result is the sum of elements 0 to i, or of i to the last. f32, f64, and the
// 16-bit types by way of f32; i32 and i64 wrap. Sums go in the order of the elements.
enum class ScanFrom { kFirst, kLast };
Tensor cumsum(const Tensor& x, int dim, ScanFrom from);

}  // namespace dtensor::cpu
