#include "dtensor/ops/cpu/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "dtensor/tests/ops/cpu/reference.h"

namespace dtensor {
namespace {

using testing::bits;
using testing::epsilon;
using testing::expect_close;
using testing::random;
using testing::strided;
using testing::Values;
using testing::values;
using testing::with_threads;

constexpr double kEps = 1e-5;

Values norm(const Values& x, const Values& w) {
  const size_t h = w.size();
  Values y(x.size());
  for (size_t row = 0; row < x.size(); row += h) {
    double mean = 0;
    for (size_t i = 0; i < h; ++i) mean += x[row + i] * x[row + i] / static_cast<double>(h);
    for (size_t i = 0; i < h; ++i) y[row + i] = x[row + i] / std::sqrt(mean + kEps) * w[i];
  }
  return y;
}

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// d (g . f(x)) / dx by central differences in double.
template <class F>
Values differences(const Values& at, const Values& g, const F& f) {
  constexpr double kStep = 1e-5;
  Values d(at.size());
  for (size_t i = 0; i < at.size(); ++i) {
    Values up = at;
    Values down = at;
    up[i] += kStep;
    down[i] -= kStep;
    d[i] = (dot(g, f(up)) - dot(g, f(down))) / (2 * kStep);
  }
  return d;
}

class Norm : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Norm, testing::floating_dtypes(), testing::dtype_test_name);

TEST_P(Norm, ForwardEqualsAPlainLoop) {
  for (const Shape& shape : {Shape{3, 5, 60}, Shape{1, 1}, Shape{7, 256}, Shape{0, 8}, Shape{17}}) {
    const Tensor x = random(shape, GetParam(), 1, -3, 3);
    const Tensor w = random({shape.back()}, GetParam(), 2);
    const Values want = norm(values(x), values(w));
    expect_close(cpu::rms_norm(x, w, kEps), want, 8 * epsilon(GetParam()), 0);
    EXPECT_EQ(bits(cpu::rms_norm(strided(x), strided(w), kEps)), bits(cpu::rms_norm(x, w, kEps)));
  }
  EXPECT_EQ(cpu::rms_norm(Tensor::zeros({3, 0}), Tensor::zeros({0}), kEps).numel(), 0);
}

TEST_P(Norm, GradientsEqualCentralDifferences) {
  const Tensor x = random({2, 3, 21}, GetParam(), 3, -2, 2);
  const Tensor w = random({21}, GetParam(), 4);
  const Tensor g = random({2, 3, 21}, GetParam(), 5);
  const Values dx =
      differences(values(x), values(g), [&](const Values& v) { return norm(v, values(w)); });
  const Values dw =
      differences(values(w), values(g), [&](const Values& v) { return norm(values(x), v); });
  const double tolerance = GetParam() == DType::kFloat64 ? 1e-9 : 8 * epsilon(GetParam());
  expect_close(cpu::rms_norm_dx(strided(g), x, w, kEps), dx, tolerance, tolerance);
  expect_close(cpu::rms_norm_dw(g, strided(x), kEps), dw, tolerance, tolerance);
  const cpu::RmsNormGrads both = cpu::rms_norm_backward(g, x, w, kEps);
  EXPECT_EQ(bits(both.dx), bits(cpu::rms_norm_dx(g, x, w, kEps)));
  EXPECT_EQ(bits(both.dw), bits(cpu::rms_norm_dw(g, x, kEps)));
}

TEST_P(Norm, ThreadsDoNotChangeBits) {
  const Tensor x = random({1000, 130}, GetParam(), 6);
  const Tensor g = random({1000, 130}, GetParam(), 7);
  const Tensor w = random({130}, GetParam(), 8);
  const auto run = [&] {
    const cpu::RmsNormGrads d = cpu::rms_norm_backward(g, x, w, kEps);
    return std::vector{bits(cpu::rms_norm(x, w, kEps)), bits(d.dx), bits(d.dw)};
  };
  EXPECT_EQ(with_threads(1, run), with_threads(3, run));
}

TEST(NormErrors, WeightAndGradientMustFit) {
  const Tensor x = Tensor::zeros({2, 3});
  EXPECT_THROW(cpu::rms_norm(x, Tensor::zeros({2}), kEps), ArgumentError);
  EXPECT_THROW(cpu::rms_norm(x, Tensor::zeros({3}, DType::kFloat64), kEps), ArgumentError);
  EXPECT_THROW(cpu::rms_norm(Tensor::zeros({}), Tensor::zeros({1}), kEps), ArgumentError);
  EXPECT_THROW(cpu::rms_norm_dw(Tensor::zeros({3, 2}), x, kEps), ArgumentError);
  EXPECT_EQ(values(cpu::rms_norm_dw(Tensor::zeros({0, 3}), Tensor::zeros({0, 3}), kEps)),
            (Values{0, 0, 0}));
  // bf16 activations with f32 weights.
  EXPECT_EQ(cpu::rms_norm(x.to(DType::kBFloat16), Tensor::zeros({3}), kEps).dtype(),
            DType::kBFloat16);
}

}  // namespace
}  // namespace dtensor
