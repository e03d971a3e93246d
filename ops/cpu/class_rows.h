// What kernels over rows of classes [...,v] share: their statistics' shape, and the loop over rows.

#pragma once

#include <span>
#include <string>

#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/ops/cpu/parallel.h"
#include "dtensor/ops/cpu/rows.h"
#include "dtensor/ops/cpu/simd.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

inline Shape rows_shape(const char* op, const Tensor& logits) {
  if (logits.ndim() == 0) {
    throw ArgumentError(std::string(op) + ": wants logits [...,v], found a scalar");
  }
  return Shape(
      std::span<const int64_t>(logits.shape()).first(static_cast<size_t>(logits.ndim() - 1)));
}

inline void check_statistic(const char* op, const Tensor& logits, const Tensor& t) {
  if (t.shape() == rows_shape(op, logits) && t.dtype() == accumulator_of(logits.dtype())) return;
  throw ArgumentError(std::string(op) + ": the rows of logits " + describe(logits) +
                      " want statistics " + std::string(name_of(accumulator_of(logits.dtype()))) +
                      to_string(rows_shape(op, logits)) + ", found " + describe(t));
}

// f(isa, rows, row) for every row of logits, in parallel.
template <class T, class F>
void for_rows(const Tensor& logits, const F& f) {
  const Rows<T> rows(logits);
  parallel_rows(rows.count(), rows.width(), [&](int64_t begin, int64_t end) {
    simd::dispatch([&](auto isa) {
      for (int64_t row = begin; row < end; ++row) f(isa, rows, row);
    });
  });
}

template <class Isa, class T>
inline constexpr int kLanesOf = Isa::template lanes<simd::Compute<T>>();

}  // namespace dtensor::cpu
