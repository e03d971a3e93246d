// for_each_row: goes over the elements of N tensors of one shape, as rows that are as long as
// their strides allow: contiguous operands give one row.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "dtensor/base/shape.h"

namespace dtensor::internal {

template <size_t N>
using Offsets = std::array<int64_t, N>;

// The dims of N tensors of one shape, the innermost first, every dim merged into the one inside it
// where all operands allow; none of size 1 but dim 0.
template <size_t N>
struct MergedDims {
  Shape size{1};
  std::array<Shape, N> step;
};

template <size_t N>
MergedDims<N> merge_dims(const Shape& shape, const std::array<Shape, N>& strides) {
  MergedDims<N> m;
  m.step.fill(Shape{1});
  for (int d = shape.ndim() - 1; d >= 0; --d) {
    if (shape[d] == 1) continue;
    const int top = m.size.ndim() - 1;
    bool merges = m.size[top] != 1;
    for (size_t i = 0; i < N; ++i) merges = merges && strides[i][d] == m.step[i][top] * m.size[top];
    if (merges) {
      m.size[top] *= shape[d];
    } else if (top == 0 && m.size[0] == 1) {
      m.size[0] = shape[d];
      for (size_t i = 0; i < N; ++i) m.step[i][0] = strides[i][d];
    } else {
      m.size.push_back(shape[d]);
      for (size_t i = 0; i < N; ++i) m.step[i].push_back(strides[i][d]);
    }
  }
  return m;
}

// Calls f(offsets, n, steps) for every row along dim 0: n elements, operand i at offsets[i] +
// k * steps[i]. The other dims count like the wheels of an odometer.
template <size_t N, class F>
void for_each_row(const MergedDims<N>& dims, F&& f) {
  Offsets<N> inner;
  for (size_t i = 0; i < N; ++i) inner[i] = dims.step[i][0];
  Offsets<N> at{};
  Shape wheel = Shape::filled(dims.size.ndim(), 0);
  while (true) {
    f(at, dims.size[0], inner);
    int d = 1;
    for (; d < dims.size.ndim(); ++d) {
      for (size_t i = 0; i < N; ++i) at[i] += dims.step[i][d];
      if (++wheel[d] < dims.size[d]) break;
      for (size_t i = 0; i < N; ++i) at[i] -= dims.size[d] * dims.step[i][d];
      wheel[d] = 0;
    }
    if (d == dims.size.ndim()) return;
  }
}

template <size_t N, class F>
void for_each_row(const Shape& shape, const std::array<Shape, N>& strides, F&& f) {
  if (shape.numel() > 0) for_each_row(merge_dims(shape, strides), f);
}

}  // namespace dtensor::internal
