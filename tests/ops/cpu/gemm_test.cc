#include "dtensor/ops/cpu/gemm.h"

#include <gtest/gtest.h>

#include <array>
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

// a [s,m,k], b [s,k,n]
Values product(const Values& a, const Values& b, int64_t s, int64_t m, int64_t n, int64_t k) {
  Values c(static_cast<size_t>(s * m * n), 0.0);
  for (int64_t q = 0; q < s; ++q) {
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < k; ++p) {
          sum += a[static_cast<size_t>((q * m + i) * k + p)] *
                 b[static_cast<size_t>((q * k + p) * n + j)];
        }
        c[static_cast<size_t>((q * m + i) * n + j)] = sum;
      }
    }
  }
  return c;
}

// Entries are in [-1, 1): the rounding errors of a sum of k products are below k^2 epsilon / 2 in
// the worst case; a tenth of that is far above what is seen.
double tolerance(DType dtype, int64_t k) {
  const double accumulated = dtype == DType::kFloat64 ? 1.2e-16 : 6e-8;
  return accumulated * static_cast<double>(k * k + 1) / 10 + accumulated * 4;
}
double rounding(DType dtype) { return dtype == DType::kBFloat16 ? 1.0 / 256 : 0.0; }

class Gemm : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Gemm, testing::floating_dtypes(), testing::dtype_test_name);

const std::vector<std::array<int64_t, 3>> kSizes = {
    {1, 1, 1}, {3, 5, 7}, {1, 33, 40}, {17, 1, 9},  {64, 64, 64}, {131, 30, 257},
    {0, 4, 5}, {4, 0, 5}, {4, 5, 0},   {37, 60, 1}, {1, 50, 129}, {4, 300, 77}};

TEST_P(Gemm, MatmulEqualsATripleLoop) {
  for (const auto& [m, n, k] : kSizes) {
    const Tensor a = random({m, k}, GetParam(), 1);
    const Tensor b = random({k, n}, GetParam(), 2);
    const Values want = product(values(a), values(b), 1, m, n, k);
    const double absolute = tolerance(GetParam(), k);
    SCOPED_TRACE(::testing::Message() << m << "," << n << "," << k);
    // As they are; transposed views; rows with a pitch; no pitch at all.
    const Tensor at = a.transpose(0, 1).clone().transpose(0, 1);
    const Tensor bt = b.transpose(0, 1).clone().transpose(0, 1);
    expect_close(cpu::matmul(a, b), want, rounding(GetParam()), absolute);
    expect_close(cpu::matmul(at, b), want, rounding(GetParam()), absolute);
    expect_close(cpu::matmul(a, bt), want, rounding(GetParam()), absolute);
    expect_close(cpu::matmul(at, bt), want, rounding(GetParam()), absolute);
    expect_close(cpu::matmul(strided(a), strided(b)), want, rounding(GetParam()), absolute);
    const Tensor wide = Tensor::full({m + 1, k + 3}, NAN, GetParam());
    const Tensor pitched = wide.narrow(0, 1, m).narrow(1, 2, k);
    kernels::copy(a, pitched);
    expect_close(cpu::matmul(pitched, b), want, rounding(GetParam()), absolute);
  }
}

TEST_P(Gemm, LinearAndItsGradientsAreMatmulsOfViews) {
  for (const auto& [m, n, k] : kSizes) {
    const Tensor x = random({2, m, k}, GetParam(), 3);
    const Tensor w = random({n, k}, GetParam(), 4);
    const Tensor g = random({2, m, n}, GetParam(), 5);
    const Values wt = values(w.transpose(0, 1).clone());
    const Values gt = values(g.reshape({2 * m, n}).transpose(0, 1).clone());
    SCOPED_TRACE(::testing::Message() << m << "," << n << "," << k);
    const Tensor y = cpu::linear(x, w);
    EXPECT_EQ(y.shape(), (Shape{2, m, n}));
    expect_close(y, product(values(x), wt, 1, 2 * m, n, k), rounding(GetParam()),
                 tolerance(GetParam(), k));
    const Tensor dx = cpu::linear_dx(strided(g), w);
    EXPECT_EQ(dx.shape(), x.shape());
    expect_close(dx, product(values(g), values(w), 1, 2 * m, k, n), rounding(GetParam()),
                 tolerance(GetParam(), n));
    const Values dw = product(gt, values(x), 1, n, k, 2 * m);
    expect_close(cpu::linear_dw(g, x), dw, rounding(GetParam()), tolerance(GetParam(), 2 * m));
    expect_close(cpu::linear_dw(strided(g), strided(x)), dw, rounding(GetParam()),
                 tolerance(GetParam(), 2 * m));
  }
}

TEST_P(Gemm, GradientsAccumulateInPlaceWithoutRoundingToBFloat16) {
  const Tensor g = random({2, 19, 12}, GetParam(), 6);
  const Tensor x = random({2, 19, 40}, GetParam(), 7);
  const DType sum = GetParam() == DType::kBFloat16 ? DType::kFloat32 : GetParam();
  const Tensor dw = random({12, 40}, sum, 8);
  Values want = values(dw);
  const Values once =
      product(values(g.reshape({38, 12}).transpose(0, 1).clone()), values(x), 1, 12, 40, 38);
  for (size_t i = 0; i < want.size(); ++i) want[i] += 2 * once[i];
  const uint64_t before = dw.storage()->version();
  cpu::linear_dw_add(g, x, dw);
  cpu::linear_dw_add(strided(g), x, dw);
  EXPECT_GT(dw.storage()->version(), before);
  expect_close(dw, want, 0, tolerance(sum, 76));
}

TEST_P(Gemm, StacksMultiplyMatrixByMatrix) {
  const Tensor a = random({2, 3, 5, 7}, GetParam(), 9);
  const Tensor b = random({2, 3, 7, 4}, GetParam(), 10);
  const Values want = product(values(a), values(b), 6, 5, 4, 7);
  expect_close(cpu::matmul(a, b), want, rounding(GetParam()), tolerance(GetParam(), 7));
  expect_close(cpu::matmul(strided(a), strided(b)), want, rounding(GetParam()),
               tolerance(GetParam(), 7));
  const Tensor swapped = b.transpose(-1, -2).clone().transpose(-1, -2);
  expect_close(cpu::matmul(a, swapped), want, rounding(GetParam()), tolerance(GetParam(), 7));
  EXPECT_EQ(cpu::matmul(random({0, 5, 7}, GetParam(), 1), random({0, 7, 4}, GetParam(), 1)).shape(),
            (Shape{0, 5, 4}));
}

// A token's row by a weight: lengths around the vectors of every instruction set, rows with a
// pitch.
TEST_P(Gemm, OneRowTimesAWeight) {
  for (const int64_t k : {1, 2, 3, 7, 8, 15, 16, 31, 33, 63, 64, 65, 96, 127, 130, 577}) {
    const Tensor x = random({1, k}, GetParam(), 16);
    const Tensor wide = random({5, k + 3}, GetParam(), 17);
    const Tensor w = wide.narrow(1, 1, k);
    const Values want = product(values(x), values(w.transpose(0, 1).clone()), 1, 1, 5, k);
    SCOPED_TRACE(k);
    expect_close(cpu::linear(x, w), want, rounding(GetParam()), tolerance(GetParam(), k));
    expect_close(cpu::linear(x, w.clone()), want, rounding(GetParam()), tolerance(GetParam(), k));
  }
}

TEST_P(Gemm, ThreadsDoNotChangeBits) {
  const Tensor x = random({700, 96}, GetParam(), 11);
  const Tensor w = random({150, 96}, GetParam(), 12);
  const Tensor g = random({700, 150}, GetParam(), 13);
  const Tensor row = random({1, 1024}, GetParam(), 14);
  const Tensor wide = random({3000, 1024}, GetParam(), 15);
  const auto run = [&] {
    return std::vector{bits(cpu::linear(x, w)), bits(cpu::linear_dx(g, w)),
                       bits(cpu::linear_dw(g, x)), bits(cpu::linear(row, wide))};
  };
  EXPECT_EQ(with_threads(1, run), with_threads(3, run));
}

TEST(GemmErrors, NameWhatWasFound) {
  const Tensor a = Tensor::zeros({4, 3});
  EXPECT_THROW(cpu::matmul(a, a), ArgumentError);
  EXPECT_THROW(cpu::matmul(a, Tensor::zeros({3})), ArgumentError);
  EXPECT_THROW(cpu::matmul(a, Tensor::zeros({3, 2}, DType::kFloat64)), ArgumentError);
  EXPECT_THROW(cpu::matmul(Tensor::zeros({2, 4, 3}), Tensor::zeros({1, 3, 2})), ArgumentError);
  EXPECT_THROW(cpu::linear(a, Tensor::zeros({5, 4})), ArgumentError);
  EXPECT_THROW(cpu::linear_dw(a, Tensor::zeros({5, 3})), ArgumentError);
  EXPECT_THROW(cpu::linear_dw_add(a, a, Tensor::zeros({3, 4})), ArgumentError);
  EXPECT_THROW(
      cpu::matmul(Tensor::zeros({1, 1}, DType::kInt64), Tensor::zeros({1, 1}, DType::kInt64)),
      ArgumentError);
  try {
    cpu::linear(a, Tensor::zeros({5, 4}));
    FAIL();
  } catch (const ArgumentError& e) {
    EXPECT_NE(std::string(e.what()).find("f32[4,3] and f32[5,4]"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace dtensor
