// What gradient clipping needs of one local Tensor: the parts of a norm, and scaling in place.
// Tensors may be strided or empty; f32, f64, bf16; ArgumentError for other dtypes.

#pragma once

#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

// Accumulated in double, in an order fixed by the shape; 0 for no elements; NaN where one is NaN.
double sum_of_squares(const Tensor& x);
double sum_of_abs(const Tensor& x);
double max_abs(const Tensor& x);

// x *= factor, the factor rounded to the type computed in (f32, or f64), the product to x's dtype.
void scale_in_place(const Tensor& x, double factor);

}  // namespace dtensor::cpu
