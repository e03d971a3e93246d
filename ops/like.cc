#include "dtensor/ops/like.h"

#include <cmath>
#include <string>
#include <vector>

#include "dtensor/ops/dispatch.h"
#include "dtensor/tensor/factory.h"

namespace dtensor {

DTensor full_like(const DTensor& like, double value, const LikeOptions& options) {
  ops::check_same_dtype("full_like", {like});
  const DType dtype = options.dtype.value_or(like.dtype());
  check_range("full_like", dtype, value);
  const DTensor shape = ops::shape_operand(like);
  if (!like.mesh().defined()) return DTensor(Tensor::full(like.shape(), value, dtype));
  if (!shape.has_local()) return DTensor(dtype, shape.layout(), like.mesh());
  return DTensor(Tensor::full(shape.local_tensor().shape(), value, dtype), shape.layout(),
                 like.mesh());
}

DTensor zeros_like(const DTensor& like, const LikeOptions& options) {
  return full_like(like, 0.0, options);
}

DTensor ones_like(const DTensor& like, const LikeOptions& options) {
  return full_like(like, 1.0, options);
}

namespace {

DTensor numbers(const std::vector<double>& values, const Shape& shape, const DTensor& like,
                DType dtype) {
  return constant(Tensor::of(std::span<const double>(values), shape).to(dtype), like);
}

}  // namespace

DTensor arange(double begin, double end, const DTensor& like, const ArangeOptions& options) {
  const double count = std::ceil((end - begin) / options.step);
  constexpr double kMost = 9007199254740992.0;  // 2^53: beyond it numbers are no longer told apart
  if (options.step == 0.0 || !(count <= kMost)) {
    throw ArgumentError("arange: from " + std::to_string(begin) + " to " + std::to_string(end) +
                        " in steps of " + std::to_string(options.step) +
                        "; give at most 2^53 finite numbers");
  }
  if (count > 0) {
    check_range("arange", options.dtype, begin);
    check_range("arange", options.dtype, begin + (count - 1) * options.step);
  }
  std::vector<double> values;
  const int64_t n = count > 0 ? static_cast<int64_t>(count) : 0;
  for (int64_t i = 0; i < n; ++i) {
    values.push_back(begin + static_cast<double>(i) * options.step);
  }
  return numbers(values, {static_cast<int64_t>(values.size())}, like, options.dtype);
}

DTensor linspace(double begin, double end, int64_t n, const DTensor& like, DType dtype) {
  if (n < 0) throw ArgumentError("linspace: " + std::to_string(n) + " numbers");
  check_range("linspace", dtype, begin);
  check_range("linspace", dtype, end);
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) {
    // From the nearer end, so that both are exact.
    const double step = (end - begin) / static_cast<double>(n > 1 ? n - 1 : 1);
    values.push_back(2 * i < n ? begin + static_cast<double>(i) * step
                               : end - static_cast<double>(n - 1 - i) * step);
  }
  return numbers(values, {n}, like, dtype);
}

DTensor eye(int64_t n, const DTensor& like, std::optional<int64_t> m, DType dtype) {
  const Shape shape{n, m.value_or(n)};
  check_shape(shape, "eye");
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  for (int64_t i = 0; i < std::min(n, shape[1]); ++i) {
    values[static_cast<size_t>(i * shape[1] + i)] = 1.0;
  }
  return numbers(values, shape, like, dtype);
}

}  // namespace dtensor
