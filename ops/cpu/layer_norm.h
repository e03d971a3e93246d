// Layer norm on local rows [...,h] that may be part of the rows (h cut between ranks): with mean
// and inverse = 1 / sqrt(variance + eps) taken over the whole row,
//   y = (x - mean) inverse w + b    (Ba, Kiros and Hinton, "Layer normalization", 2016).
// Without a mean it is RMS norm. x, g: f32, f64, bf16, strided or empty; w, b: [h] or undefined, of
// x's dtype or f32; statistics [...] are f32, or f64 where x is f64. Results are new and
// contiguous. ArgumentError otherwise. With v = g w, u = (x - mean) inverse and n the whole row's
// length,
//   dx = inverse (v - sum(v)/n - u sum(v u)/n),  dw = sum over rows of g u,  db = of g.

#pragma once

#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

struct RowStats {
  Tensor mean;  // undefined for RMS norm
  Tensor inverse;
};
// Of whole rows: the variance from the distances to the mean.
RowStats row_stats(const Tensor& x, double eps);

// Of parts of rows: [...] sums of x, of (x - mean)² (of x² without a mean).
Tensor row_sums(const Tensor& x);
Tensor row_squares(const Tensor& x, const Tensor& mean);
// 1 / sqrt(squares / n + eps).
Tensor inverse_root(const Tensor& squares, int64_t n, double eps);

Tensor layer_norm(const Tensor& x, const RowStats& stats, const Tensor& w, const Tensor& b);

// [...]: the local parts of sum(v) (undefined without a mean) and sum(v u).
struct RowSums {
  Tensor v;
  Tensor vu;
};
RowSums layer_norm_sums(const Tensor& g, const Tensor& x, const RowStats& stats, const Tensor& w);
Tensor layer_norm_dx(const Tensor& g, const Tensor& x, const RowStats& stats, const Tensor& w,
                     const RowSums& sums, int64_t n);

// [h], of x's dtype. Rows are summed in an order fixed by the shape.
struct LayerNormGrads {
  Tensor dw;
  Tensor db;
};
LayerNormGrads layer_norm_dw(const Tensor& g, const Tensor& x, const RowStats& stats);

}  // namespace dtensor::cpu
