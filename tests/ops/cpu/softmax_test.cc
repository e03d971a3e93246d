#include "dtensor/ops/cpu/softmax.h"

#include <gtest/gtest.h>

#include <cmath>

#include "dtensor/tests/ops/cpu/reference.h"

namespace dtensor {
namespace {

using cpu::SoftmaxForm;
using testing::bits;
using testing::epsilon;
using testing::expect_close;
using testing::random;
using testing::strided;
using testing::Values;
using testing::values;

constexpr size_t kRows = 5;
constexpr size_t kClasses = 37;

class Softmax : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Softmax, testing::floating_dtypes(), testing::dtype_test_name);

TEST_P(Softmax, AndItsGradientEqualPlainLoops) {
  const Tensor x = random({kRows, kClasses}, GetParam(), 1, -6, 6);
  const Tensor g = random({kRows, kClasses}, GetParam(), 2);
  const Values v = values(x);
  Values plain(v.size());
  Values log(v.size());
  for (size_t row = 0; row < kRows; ++row) {
    double sum = 0;
    for (size_t i = 0; i < kClasses; ++i) sum += std::exp(v[row * kClasses + i]);
    for (size_t i = row * kClasses; i < (row + 1) * kClasses; ++i) {
      plain[i] = std::exp(v[i]) / sum;
      log[i] = v[i] - std::log(sum);
    }
  }
  const cpu::SoftmaxStats stats = cpu::softmax_stats(x);
  const double e = epsilon(GetParam());
  const Tensor p = cpu::softmax(x, stats, SoftmaxForm::kPlain);
  const Tensor l = cpu::softmax(strided(x), stats, SoftmaxForm::kLog);
  expect_close(p, plain, 12 * e, 0);
  expect_close(l, log, 4 * e, 16 * e);

  // Of what was computed, in double.
  const Values vg = values(g);
  const Values vp = values(p);
  const Values vl = values(l);
  Values from_plain(v.size());
  Values from_log(v.size());
  for (size_t row = 0; row < kRows; ++row) {
    double dot = 0;
    double sum = 0;
    for (size_t i = row * kClasses; i < (row + 1) * kClasses; ++i) {
      dot += vg[i] * vp[i];
      sum += vg[i];
    }
    for (size_t i = row * kClasses; i < (row + 1) * kClasses; ++i) {
      from_plain[i] = vp[i] * (vg[i] - dot);
      from_log[i] = vg[i] - std::exp(vl[i]) * sum;
    }
  }
  const auto gradient = [&](const Tensor& y, SoftmaxForm form) {
    return cpu::softmax_backward(strided(g), y, cpu::softmax_dot(g, strided(y), form), form);
  };
  expect_close(gradient(p, SoftmaxForm::kPlain), from_plain, 2 * e, 40 * 6e-8);
  expect_close(gradient(l, SoftmaxForm::kLog), from_log, 2 * e, 40 * 6e-8);
}

TEST(Softmax, OfRowsWithoutClassesOrRows) {
  const Tensor none = Tensor::zeros({2, 0});
  const cpu::SoftmaxStats stats = cpu::softmax_stats(none);
  EXPECT_EQ(cpu::softmax(none, stats, SoftmaxForm::kPlain).shape(), (Shape{2, 0}));
  EXPECT_EQ(values(stats.max)[0], -INFINITY);
  EXPECT_EQ(values(stats.sum)[0], 0.0);
  EXPECT_THROW(cpu::softmax(Tensor::zeros({3, 4}), stats, SoftmaxForm::kLog), ArgumentError);
  EXPECT_THROW(cpu::softmax_stats(Tensor::zeros({})), ArgumentError);
}

}  // namespace
}  // namespace dtensor
