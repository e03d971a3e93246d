// Element `index` of a dim of a local Tensor, without that dim: a view.

#pragma once

#include "dtensor/tensor/tensor.h"

namespace dtensor::ops {

inline Tensor local_select(const Tensor& t, int dim, int64_t index) {
  const Tensor one = t.narrow(dim, index, 1);
  Shape shape;
  Shape strides;
  for (int d = 0; d < t.ndim(); ++d) {
    if (d == dim) continue;
    shape.push_back(one.shape()[d]);
    strides.push_back(one.strides()[d]);
  }
  return one.as_strided(shape, strides, one.offset());
}

// A shape with a dim put in before `dim`.
inline Shape with_dim(const Shape& shape, int dim, int64_t size) {
  Shape wider;
  for (int d = 0; d <= shape.ndim(); ++d) {
    if (d == dim) wider.push_back(size);
    if (d < shape.ndim()) wider.push_back(shape[d]);
  }
  return wider;
}

}  // namespace dtensor::ops
