// Checks of dtypes and shapes that the kernels share, and the choice of a kernel by dtype.

#pragma once

#include <string>

#include "dtensor/base/dtype.h"
#include "dtensor/base/error.h"
#include "dtensor/base/shape.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

// "f32[4,11]"
inline std::string describe(const Tensor& t) {
  return std::string(name_of(t.dtype())) + to_string(t.shape());
}

[[noreturn]] inline void refuse_dtype(const char* op, DType found, const char* known) {
  throw ArgumentError(std::string(op) + ": no kernel for " + std::string(name_of(found)) +
                      "; it takes " + known + ". Use to(...) to convert.");
}

// Calls f(T{}) for f32, f64 or bf16.
template <class F>
decltype(auto) visit_floating(const char* op, DType dtype, F&& f) {
  if (dtype == DType::kFloat32) return f(float{});
  if (dtype == DType::kFloat64) return f(double{});
  if (dtype == DType::kBFloat16) return f(BFloat16{});
  refuse_dtype(op, dtype, "f32, f64 and bf16");
}

// Calls f(T{}) for f32, f64, bf16, i32 or i64.
template <class F>
decltype(auto) visit_number(const char* op, DType dtype, F&& f) {
  if (dtype == DType::kInt32) return f(int32_t{});
  if (dtype == DType::kInt64) return f(int64_t{});
  if (is_floating(dtype) && dtype != DType::kFloat16) return visit_floating(op, dtype, f);
  refuse_dtype(op, dtype, "f32, f64, bf16, i32 and i64");
}

// The dtype of sums and statistics over elements of `dtype`: f32, or f64 for f64.
inline DType accumulator_of(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

inline void check_same_dtype(const char* op, const Tensor& a, const Tensor& b) {
  if (a.dtype() == b.dtype()) return;
  throw ArgumentError(std::string(op) + ": operands are " + describe(a) + " and " + describe(b) +
                      "; convert one of them with to(...)");
}

inline void check_same_shape(const char* op, const Tensor& a, const Tensor& b) {
  if (a.shape() == b.shape()) return;
  throw ArgumentError(std::string(op) + ": shapes must be equal, found " + describe(a) + " and " +
                      describe(b));
}

}  // namespace dtensor::cpu
