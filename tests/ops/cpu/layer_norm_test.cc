#include "dtensor/ops/cpu/layer_norm.h"

#include <gtest/gtest.h>

#include <cmath>

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

constexpr size_t kRows = 131;  // in blocks of 64
constexpr size_t kWidth = 37;
constexpr double kEps = 1e-3;

class LayerNorm : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, LayerNorm, testing::floating_dtypes(), testing::dtype_test_name);

struct Case {
  Tensor x, g, w, b;
  explicit Case(DType dtype)
      : x(random({kRows, kWidth}, dtype, 1, 1, 3)),
        g(random({kRows, kWidth}, dtype, 2)),
        w(random({kWidth}, dtype, 3, 0.5, 1.5)),
        b(random({kWidth}, dtype, 4)) {}
};

// u = (x - mean) / sqrt(var + eps) of every element and the inverse root of every row; RMS norm
// without the mean.
struct Normalised {
  Values u, inverse;
  Normalised(const Values& x, bool centered) : u(x.size()), inverse(kRows) {
    for (size_t row = 0; row < kRows; ++row) {
      double mean = 0;
      double squares = 0;
      const size_t from = row * kWidth;
      for (size_t i = 0; centered && i < kWidth; ++i) mean += x[from + i] / kWidth;
      for (size_t i = 0; i < kWidth; ++i) squares += std::pow(x[from + i] - mean, 2);
      inverse[row] = 1 / std::sqrt(squares / kWidth + kEps);
      for (size_t i = 0; i < kWidth; ++i) u[from + i] = (x[from + i] - mean) * inverse[row];
    }
  }
};

cpu::RowStats stats_of(const Tensor& x, bool centered) {
  if (centered) return cpu::row_stats(x, kEps);
  return {{}, cpu::inverse_root(cpu::row_squares(x, {}), kWidth, kEps)};
}

TEST_P(LayerNorm, AndItsGradientsEqualPlainLoops) {
  const Case c(GetParam());
  const Values g = values(c.g);
  const Values w = values(c.w);
  const Values b = values(c.b);
  // Statistics are f32 beside narrow types.
  const double e = 40 * std::max(epsilon(DType::kFloat32) * (GetParam() != DType::kFloat64),
                                 epsilon(DType::kFloat64));
  for (const bool centered : {true, false}) {
    const Normalised n(values(c.x), centered);
    Values y(g.size());
    Values dx(g.size());
    Values dw(kWidth, 0.0);
    Values db(kWidth, 0.0);
    for (size_t row = 0; row < kRows; ++row) {
      double sum = 0;
      double along = 0;
      for (size_t i = 0; i < kWidth; ++i) {
        const size_t at = row * kWidth + i;
        y[at] = n.u[at] * w[i] + b[i];
        sum += centered ? g[at] * w[i] / kWidth : 0;
        along += g[at] * w[i] * n.u[at] / kWidth;
        dw[i] += g[at] * n.u[at];
        db[i] += g[at];
      }
      for (size_t i = 0; i < kWidth; ++i) {
        const size_t at = row * kWidth + i;
        dx[at] = (g[at] * w[i] - sum - n.u[at] * along) * n.inverse[row];
      }
    }
    const double one = epsilon(GetParam());
    const cpu::RowStats stats = stats_of(c.x, centered);
    expect_close(cpu::layer_norm(strided(c.x), stats, c.w, c.b), y, one, e);
    const cpu::RowSums sums = cpu::layer_norm_sums(c.g, strided(c.x), stats, c.w);
    expect_close(cpu::layer_norm_dx(strided(c.g), c.x, stats, c.w, sums, kWidth), dx, one, e);
    const cpu::LayerNormGrads grads = cpu::layer_norm_dw(c.g, strided(c.x), stats);
    expect_close(grads.dw, dw, one, 20 * e);
    expect_close(grads.db, db, one, 20 * e);
  }
}

// Of rows in two parts, as two ranks have them.
TEST_P(LayerNorm, OfPartsOfRowsIsThatOfTheRows) {
  const Case c(GetParam());
  const cpu::RowStats stats = cpu::row_stats(c.x, kEps);
  const Tensor left = c.x.narrow(1, 0, 17);
  const Tensor right = c.x.narrow(1, 17, kWidth - 17);
  const auto added = [](const Tensor& a, const Tensor& b) {
    Values sum = values(a);
    const Values more = values(b);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
    return sum;
  };
  Values means = added(cpu::row_sums(left), cpu::row_sums(right));
  for (double& m : means) m /= kWidth;
  expect_close(stats.mean, means, 1e-6, 0);
  const Tensor mean = stats.mean;
  const Values squares = added(cpu::row_squares(left, mean), cpu::row_squares(right, mean));
  const Tensor whole =
      Tensor::of(std::span<const double>(squares), {kRows}).to(stats.inverse.dtype());
  expect_close(cpu::inverse_root(whole, kWidth, kEps), values(stats.inverse), 1e-6, 0);
}

TEST(LayerNorm, ThreadsDoNotChangeBits) {
  const Case c(DType::kFloat32);
  const cpu::RowStats stats = cpu::row_stats(c.x, kEps);
  const auto run = [&] { return bits(cpu::layer_norm_dw(c.g, c.x, stats).dw); };
  EXPECT_EQ(with_threads(1, run), with_threads(3, run));
}

TEST(LayerNorm, RefusesWeightsOfAnotherLength) {
  const Tensor x = Tensor::zeros({2, 3});
  const cpu::RowStats stats = cpu::row_stats(x, kEps);
  EXPECT_THROW(cpu::layer_norm(x, stats, Tensor::zeros({2}), {}), ArgumentError);
  EXPECT_THROW(cpu::layer_norm(Tensor::zeros({3, 3}), stats, {}, {}), ArgumentError);
  EXPECT_EQ(cpu::layer_norm(x, stats, {}, {}).shape(), (Shape{2, 3}));
}

}  // namespace
}  // namespace dtensor
