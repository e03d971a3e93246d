// What the tests of kernels share: random and strided operands, values as doubles, comparison.

#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "dtensor/base/context.h"
#include "dtensor/base/philox.h"
#include "dtensor/base/thread_pool.h"
#include "dtensor/tensor/kernels.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::testing {

using Values = std::vector<double>;

// All elements, row-major.
inline Values values(const Tensor& t) { return t.to(DType::kFloat64).to_vector<double>(); }

// Uniform in [low, high), rounded to `dtype`.
inline Tensor random(const Shape& shape, DType dtype, uint64_t seed, double low = -1.0,
                     double high = 1.0) {
  Values v(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < v.size(); ++i) v[i] = low + (high - low) * philox_uniform(seed, 7, i);
  return Tensor::of(std::span<const double>(v), shape).to(dtype);
}

// The same values, in memory column-major with gaps.
inline Tensor strided(const Tensor& t) {
  Shape strides = Shape::filled(t.ndim(), 0);
  int64_t step = 2;
  for (int d = 0; d < t.ndim(); ++d) {
    strides[d] = step;
    step *= t.shape()[d] + 1;
  }
  const Tensor view =
      Tensor::zeros({step + 3}, t.dtype()).as_strided(t.shape(), strides, t.numel() == 0 ? 0 : 3);
  kernels::copy(t, view);
  return view;
}

// The largest relative error of one rounding to `dtype`; for f64 ten of them, as the references are
// computed in it too.
inline double epsilon(DType dtype) {
  return dtype == DType::kBFloat16 ? 1.0 / 256 : dtype == DType::kFloat64 ? 1.2e-15 : 6e-8;
}

// |got - want| <= relative * |want| + absolute, element by element; NaN and inf must agree.
inline void expect_close(const Tensor& got, const Values& want, double relative, double absolute) {
  const Values v = values(got);
  ASSERT_EQ(v.size(), want.size());
  for (size_t i = 0; i < v.size(); ++i) {
    if (std::isnan(want[i])) {
      ASSERT_TRUE(std::isnan(v[i])) << "element " << i << " is " << v[i];
    } else if (std::isinf(want[i])) {
      ASSERT_EQ(v[i], want[i]) << "element " << i;
    } else {
      ASSERT_NEAR(v[i], want[i], relative * std::fabs(want[i]) + absolute) << "element " << i;
    }
  }
}

// The bytes of a contiguous tensor.
inline std::vector<char> bits(const Tensor& t) {
  std::vector<char> out(static_cast<size_t>(t.size_bytes()));
  if (!out.empty()) std::memcpy(out.data(), t.raw(), out.size());
  return out;
}

// f() with a pool of `threads`.
template <class F>
auto with_threads(int threads, const F& f) {
  ScopedSlot<CurrentThreadPool> pool(
      CurrentThreadPool{.pool = std::make_shared<ThreadPool>(threads)});
  return f();
}

// The rows of a test over dtypes.
inline auto floating_dtypes() {
  return ::testing::Values(DType::kFloat32, DType::kFloat64, DType::kBFloat16);
}
inline std::string dtype_test_name(const ::testing::TestParamInfo<DType>& info) {
  return std::string(name_of(info.param));
}

}  // namespace dtensor::testing
