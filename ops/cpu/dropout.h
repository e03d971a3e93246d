// Dropout of a piece of a global tensor: which elements stay depends on their global index alone.

#pragma once

#include "dtensor/tensor/random.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

// x / (1 - p) with probability 1 - p, else 0; 0 everywhere for p = 1. x may be strided or empty;
// f32, f64, bf16, f16; ArgumentError for others. Its own adjoint under the same stream.
Tensor dropout(const GlobalPiece& x, RandomStream stream, double p);

}  // namespace dtensor::cpu
