// Elements picked and added by index along a dim of local Tensors. `rows` is the range of the dim's
// global indices that the table-like operand holds: what lies outside is 0, or is not added.
// Operands may be strided or empty. Indices are i64 and in [0, global length): the caller checks
// (dtensor/ops/cpu/embedding.h). Picking takes every dtype; sums take f32, f64 and the 16-bit types
// (summed in f32, rounded once), in the order of the indices, on one thread per column of work.

#pragma once

#include <cstdint>

#include "dtensor/base/cut.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

// a [o...,v,i...], index [w] -> [o...,w,i...]
Tensor index_select(const Tensor& a, int dim, const Tensor& index, Range rows);
// Its adjoint: g [o...,w,i...] -> [o...,v,i...], v = rows.size().
Tensor index_sum(const Tensor& g, int dim, const Tensor& index, Range rows);

// a [o...,v,i...], index [o...,w,i...] -> index's shape
Tensor gather(const Tensor& a, int dim, const Tensor& index, Range rows);
// Its adjoint: g of index's shape -> [o...,v,i...].
Tensor scatter_sum(const Tensor& g, int dim, const Tensor& index, Range rows);

// [...] -> [...,classes]: 1 of `dtype` where the index stands, else 0.
Tensor one_hot(const Tensor& index, int64_t classes, DType dtype);

}  // namespace dtensor::cpu
