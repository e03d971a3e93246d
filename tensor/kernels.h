// The four kernels that Tensor itself needs. Operands may be strided; shapes must be equal.
// Each writes `dst` and bumps its storage's version.

#pragma once

#include "dtensor/tensor/tensor.h"

namespace dtensor::kernels {

void copy(const Tensor& src, const Tensor& dst);                // of one dtype: bit by bit
void fill(const Tensor& dst, double value);                     // -0.0 is kept
void add(const Tensor& a, const Tensor& b, const Tensor& dst);  // of one dtype; 16-bit via float32
void cast(const Tensor& src, const Tensor& dst);  // to dst's dtype, round to nearest even

}  // namespace dtensor::kernels
