// Reductions of local Tensors over chosen dims. Operands may be strided or empty; results are new
// and contiguous, of x's dtype (f16 and bf16 are reduced in f32 and rounded once; integers wrap).
// The order of a sum is fixed by shape and strides: the same bits for every number of threads. f32
// and bf16 are added in f32 in short blocks, the blocks in double, so that errors do not grow with
// the length. NaN goes through amax and amin.
// Over zero elements: sum 0, prod 1, amax -inf (integers: the lowest), amin inf (the highest).
// Dtypes f32, f64, bf16, f16, i32, i64; ArgumentError for others and for a dim that is not there or
// twice.

#pragma once

#include <span>

#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

enum class KeepDims { kNo, kYes };  // does a reduced dim stay, with size 1?

// dims: 0..ndim-1 or negative from the end; none means all of them.
Tensor sum(const Tensor& x, std::span<const int> dims = {}, KeepDims keep = KeepDims::kNo);
Tensor prod(const Tensor& x, std::span<const int> dims = {}, KeepDims keep = KeepDims::kNo);
Tensor amax(const Tensor& x, std::span<const int> dims = {}, KeepDims keep = KeepDims::kNo);
Tensor amin(const Tensor& x, std::span<const int> dims = {}, KeepDims keep = KeepDims::kNo);

}  // namespace dtensor::cpu
