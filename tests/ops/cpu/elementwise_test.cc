#include "dtensor/ops/cpu/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "dtensor/ops/cpu/binary.h"
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

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }
double silu_slope(double x) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); }

Values zip(const Values& a, const Values& b, const std::function<double(double, double)>& f) {
  Values out(a.size());
  for (size_t i = 0; i < a.size(); ++i) out[i] = f(a[i], b[i]);
  return out;
}

class Floating : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Floating, testing::floating_dtypes(), testing::dtype_test_name);

TEST_P(Floating, SiluMulEqualsAPlainLoop) {
  const Tensor g = random({7, 41}, GetParam(), 2);
  const Tensor a = random({7, 41}, GetParam(), 3, -6.0, 6.0);
  const Tensor b = random({7, 41}, GetParam(), 4);
  const double relative = 6 * epsilon(GetParam());
  const double absolute = 4 * epsilon(GetParam());  // 1 + x (1 - s) has a zero near -1.28
  const Values gb = zip(values(g), values(b), [](double u, double y) { return u * y; });
  const cpu::SiluMulGrads got = cpu::silu_mul_backward(g, strided(a), b);
  expect_close(got.da, zip(gb, values(a), [](double u, double x) { return u * silu_slope(x); }),
               relative, absolute);
  expect_close(got.db, zip(values(g), values(a), [](double u, double x) { return u * silu(x); }),
               relative, 0);
  expect_close(cpu::silu_mul(a, b),
               zip(values(a), values(b), [](double x, double y) { return silu(x) * y; }), relative,
               0);
}

TEST_P(Floating, ThreadsAndPositionDoNotChangeBits) {
  const Tensor a = random({200'003}, GetParam(), 9, -5, 5);
  const Tensor b = random({200'003}, GetParam(), 10);
  const auto run = [&] { return bits(cpu::silu_mul(a, b)); };
  EXPECT_EQ(with_threads(1, run), with_threads(3, run));
  const Tensor piece = cpu::silu_mul(a.narrow(0, 13, 1001), b.narrow(0, 13, 1001));
  EXPECT_EQ(bits(piece), bits(cpu::silu_mul(a, b).narrow(0, 13, 1001).clone()));
}

TEST(Elementwise, RefusesShapesAndDtypesThatDoNotFit) {
  const Tensor f = Tensor::zeros({2, 3});
  EXPECT_THROW(cpu::silu_mul(f, Tensor::zeros({3})), ArgumentError);
  EXPECT_THROW(cpu::silu_mul(f, f.to(DType::kFloat64)), ArgumentError);
  EXPECT_THROW(cpu::silu_mul(f.to(DType::kInt32), f.to(DType::kInt32)), ArgumentError);
}

}  // namespace
}  // namespace dtensor
