// The four kernels that Tensor itself needs. Operands may be strided and empty; shapes must be
// equal (ArgumentError). Each writes `dst` and bumps its storage's version. `dst` is no other
// operand's memory, but for add, where it may be exactly `a` or `b`.

#pragma once

#include "dtensor/tensor/tensor.h"

namespace dtensor::kernels {

void copy(const Tensor& src, const Tensor& dst);  // of one dtype: bit by bit
// Rounded to dst's dtype; -0.0 is kept; an integer's range ends bound it (infinity is the largest).
void fill(const Tensor& dst, double value);
// Of one dtype; 16-bit via float32, rounded once; integers wrap; of bool: or.
void add(const Tensor& a, const Tensor& b, const Tensor& dst);
// To dst's dtype: round to nearest even; to an integer the fraction is dropped.
void cast(const Tensor& src, const Tensor& dst);

}  // namespace dtensor::kernels
