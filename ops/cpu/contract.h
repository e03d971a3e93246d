// A product of two local Tensors by the letters of their dims, as matrix products (gemm.h).

#pragma once

#include <string_view>

#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

// "mk", "kn", "mn": letters of a, b and the result, each once in an operand. What a and b share is
// summed over unless the result has it. Every letter of a and of b stands in another operand.
// Operands may be strided; the result is new, and may be strided. f32, f64 and 16-bit types (summed
// in f32, rounded once).
struct ContractLetters {
  std::string_view a;
  std::string_view b;
  std::string_view out;
};
Tensor contract(const Tensor& a, const Tensor& b, const ContractLetters& letters);

}  // namespace dtensor::cpu
