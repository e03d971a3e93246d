// Loops over strided operands in runs: dims that lie behind each other in every operand are merged,
// so that contiguous tensors are one run.

#pragma once

#include <array>
#include <cstdint>

#include "dtensor/base/shape.h"
#include "dtensor/ops/cpu/parallel.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

// x's strides where it is broadcast to `shape` (aligned from the right; x's dims are 1 or equal).
inline Shape broadcast_strides(const Tensor& x, const Shape& shape) {
  Shape strides = Shape::filled(shape.ndim(), 0);
  const int lead = shape.ndim() - x.ndim();
  for (int d = 0; d < x.ndim(); ++d) {
    if (x.shape()[d] != 1) strides[d + lead] = x.strides()[d];
  }
  return strides;
}

template <size_t kOperands>
struct StridedLoop {
  Shape shape;
  std::array<Shape, kOperands> strides;

  // Merges dims; leaves at least one.
  void merge() {
    Shape s;
    std::array<Shape, kOperands> st;
    for (int d = 0; d < shape.ndim(); ++d) {
      if (shape[d] == 1) continue;
      bool joins = s.ndim() > 0;
      for (size_t i = 0; i < kOperands && joins; ++i) {
        joins = st[i].back() == strides[i][d] * shape[d];
      }
      if (joins) {
        s[s.ndim() - 1] *= shape[d];
        for (size_t i = 0; i < kOperands; ++i) st[i][s.ndim() - 1] = strides[i][d];
      } else {
        s.push_back(shape[d]);
        for (size_t i = 0; i < kOperands; ++i) st[i].push_back(strides[i][d]);
      }
    }
    if (s.ndim() == 0) {
      s.push_back(1);
      for (auto& one : st) one.push_back(1);
    }
    shape = s;
    strides = st;
  }

  // f(begin, offsets, length) for runs along the last dim: `begin` is the row-major number of the
  // run's first element, `offsets` that element in each operand. Runs go on in parallel.
  template <class F>
  void for_runs(const F& f) const {
    const int last = shape.ndim() - 1;
    const int64_t inner = shape[last];
    const int64_t outer = inner == 0 ? 0 : shape.numel() / inner;
    if (outer == 1) {
      parallel_for(inner, kGrain, [&](int64_t begin, int64_t end) {
        std::array<int64_t, kOperands> at;
        for (size_t i = 0; i < kOperands; ++i) at[i] = begin * strides[i][last];
        f(begin, at, end - begin);
      });
      return;
    }
    parallel_rows(outer, inner, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) f(row * inner, offsets(row), inner);
    });
  }

 private:
  std::array<int64_t, kOperands> offsets(int64_t row) const {
    std::array<int64_t, kOperands> at{};
    for (int d = shape.ndim() - 2; d >= 0; --d) {
      const int64_t index = row % shape[d];
      row /= shape[d];
      for (size_t i = 0; i < kOperands; ++i) at[i] += index * strides[i][d];
    }
    return at;
  }
};

}  // namespace dtensor::cpu
