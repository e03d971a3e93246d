// For kernels that have no f16 of their own.

#pragma once

#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

// f16 in f32; others, and undefined ones, as they are.
inline Tensor f16_as_f32(const Tensor& t) {
  return t.defined() && t.dtype() == DType::kFloat16 ? t.to(DType::kFloat32) : t;
}

}  // namespace dtensor::cpu
