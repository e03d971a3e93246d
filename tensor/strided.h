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

// Calls f(offsets, n, steps) for every row: n elements, operand i at offsets[i] + k * steps[i].
template <size_t N, class F>
void for_each_row(const Shape& shape, const std::array<Shape, N>& strides, F&& f) {
  if (shape.numel() == 0) return;
  // Merge every dim into the one inside it where all operands allow.
  Shape size{1};
  std::array<Shape, N> step;
  step.fill(Shape{1});
  for (int d = shape.ndim() - 1; d >= 0; --d) {
    if (shape[d] == 1) continue;
    const int top = size.ndim() - 1;
    bool merges = size[top] != 1;
    for (size_t i = 0; i < N; ++i) merges = merges && strides[i][d] == step[i][top] * size[top];
    if (merges) {
      size[top] *= shape[d];
    } else if (top == 0 && size[0] == 1) {
      size[0] = shape[d];
      for (size_t i = 0; i < N; ++i) step[i][0] = strides[i][d];
    } else {
      size.push_back(shape[d]);
      for (size_t i = 0; i < N; ++i) step[i].push_back(strides[i][d]);
    }
  }
  // Dim 0 is now the innermost: a row. The others count like the wheels of an odometer.
  Offsets<N> inner;
  for (size_t i = 0; i < N; ++i) inner[i] = step[i][0];
  Offsets<N> at{};
  Shape wheel = Shape::filled(size.ndim(), 0);
  while (true) {
    f(at, size[0], inner);
    int d = 1;
    for (; d < size.ndim(); ++d) {
      for (size_t i = 0; i < N; ++i) at[i] += step[i][d];
      if (++wheel[d] < size[d]) break;
      for (size_t i = 0; i < N; ++i) at[i] -= size[d] * step[i][d];
      wheel[d] = 0;
    }
    if (d == size.ndim()) return;
  }
}

}  // namespace dtensor::internal
