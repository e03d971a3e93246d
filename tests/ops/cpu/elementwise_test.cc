#include "dtensor/ops/cpu/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
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

TEST_P(Floating, UnaryKernelsEqualPlainLoops) {
  struct Case {
    Tensor (*kernel)(const Tensor&);
    std::function<double(double)> want;
  };
  const std::vector<Case> cases = {
      {cpu::neg, [](double x) { return -x; }},
      {cpu::exp, [](double x) { return std::exp(x); }},
      {cpu::relu, [](double x) { return x > 0 ? x : 0.0; }},
      {cpu::silu, silu},
  };
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{5, 37}, Shape{3, 0, 2}, Shape{2, 3, 5, 7}}) {
    const Tensor x = random(shape, GetParam(), 1, -9.0, 9.0);
    for (const Case& c : cases) {
      Values want = values(x);
      for (double& v : want) v = c.want(v);
      const double relative = 6 * epsilon(GetParam());
      expect_close(c.kernel(x), want, relative, 1e-30);
      EXPECT_TRUE(c.kernel(strided(x)).is_contiguous());
      EXPECT_EQ(bits(c.kernel(strided(x))), bits(c.kernel(x)));
    }
  }
}

TEST_P(Floating, BackwardKernelsEqualPlainLoops) {
  const Tensor g = random({7, 41}, GetParam(), 2);
  const Tensor a = random({7, 41}, GetParam(), 3, -6.0, 6.0);
  const Tensor b = random({7, 41}, GetParam(), 4);
  const double relative = 6 * epsilon(GetParam());
  const double absolute = 4 * epsilon(GetParam());  // 1 + x (1 - s) has a zero near -1.28
  expect_close(cpu::relu_backward(g, a),
               zip(values(g), values(a), [](double u, double x) { return x > 0 ? u : 0.0; }), 0, 0);
  expect_close(cpu::silu_backward(strided(g), a),
               zip(values(g), values(a), [](double u, double x) { return u * silu_slope(x); }),
               relative, absolute);
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

// Element [i,j,k] of a tensor broadcast to [A,B,C].
double at(const Tensor& t, int64_t i, int64_t j, int64_t k) {
  const Values v = values(t);
  const int64_t index[3] = {i, j, k};
  int64_t flat = 0;
  for (int d = 0; d < t.ndim(); ++d) {
    const int64_t n = t.shape()[d];
    flat = flat * n + (n == 1 ? 0 : index[3 - t.ndim() + d]);
  }
  return v[static_cast<size_t>(flat)];
}

TEST_P(Floating, BinaryKernelsBroadcastFromTheRight) {
  const std::vector<std::pair<Shape, Shape>> cases = {
      {{4, 5, 19}, {4, 5, 19}}, {{4, 5, 19}, {19}},      {{4, 5, 19}, {5, 1}}, {{4, 1, 19}, {5, 1}},
      {{}, {4, 5, 19}},         {{4, 1, 1}, {1, 5, 19}}, {{1, 1, 1}, {}}};
  for (const auto& [sa, sb] : cases) {
    const Tensor a = random(sa, GetParam(), 5);
    const Tensor b = random(sb, GetParam(), 6);
    const Shape shape = cpu::broadcast_shape(sa, sb);
    Values sum;
    Values difference;
    Values product;
    const int64_t dims[3] = {shape.ndim() > 2 ? shape[shape.ndim() - 3] : 1,
                             shape.ndim() > 1 ? shape[shape.ndim() - 2] : 1,
                             shape.ndim() > 0 ? shape.back() : 1};
    for (int64_t i = 0; i < dims[0]; ++i) {
      for (int64_t j = 0; j < dims[1]; ++j) {
        for (int64_t k = 0; k < dims[2]; ++k) {
          sum.push_back(at(a, i, j, k) + at(b, i, j, k));
          difference.push_back(at(a, i, j, k) - at(b, i, j, k));
          product.push_back(at(a, i, j, k) * at(b, i, j, k));
        }
      }
    }
    const double relative = epsilon(GetParam());
    expect_close(cpu::add(a, b), sum, relative, 0);
    expect_close(cpu::sub(strided(a), b), difference, relative, 0);
    expect_close(cpu::mul(a, strided(b)), product, relative, 0);
    EXPECT_EQ(cpu::add(a, b).shape(), shape);
  }
}

TEST_P(Floating, NumbersAndBias) {
  const Tensor x = random({6, 33}, GetParam(), 7);
  const Tensor bias = random({33}, GetParam(), 8);
  Values scaled = values(x);
  Values shifted = scaled;
  for (double& v : scaled) v *= -1.5;
  for (double& v : shifted) v += 0.25;
  expect_close(cpu::scale(x, -1.5), scaled, epsilon(GetParam()), 0);
  expect_close(cpu::add_scalar(x, 0.25), shifted, epsilon(GetParam()), 0);
  const Tensor want = cpu::add(x, bias);
  const Tensor y = x.clone();
  const uint64_t before = y.storage()->version();
  cpu::add_bias(y, bias);
  EXPECT_EQ(bits(y), bits(want));
  EXPECT_NE(y.storage()->version(), before);
  EXPECT_THROW(cpu::add_bias(strided(y), bias), ArgumentError);
  EXPECT_THROW(cpu::add_bias(y, random({32}, GetParam(), 8)), ArgumentError);
}

TEST_P(Floating, ThreadsAndPositionDoNotChangeBits) {
  const Tensor a = random({200'003}, GetParam(), 9, -5, 5);
  const Tensor b = random({200'003}, GetParam(), 10);
  const auto run = [&] { return bits(cpu::silu_mul(a, b)); };
  EXPECT_EQ(with_threads(1, run), with_threads(3, run));
  const Tensor piece = cpu::silu_mul(a.narrow(0, 13, 1001), b.narrow(0, 13, 1001));
  EXPECT_EQ(bits(piece), bits(cpu::silu_mul(a, b).narrow(0, 13, 1001).clone()));
}

TEST(Elementwise, ExpIsWithinOneUlpAndRightAtItsEnds) {
  std::vector<float> x;
  for (int i = 0; i < 200'000; ++i) x.push_back(-87.0F + 175.0F * static_cast<float>(i) / 200'000);
  const Tensor y = cpu::exp(Tensor::of(std::span<const float>(x), {200'000}));
  const auto got = y.to_vector<float>();
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::exp(static_cast<double>(x[i]));
    const float next = std::nextafter(static_cast<float>(want), INFINITY);
    ASSERT_NEAR(got[i], want, 1.05 * (next - static_cast<float>(want))) << x[i];
  }
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const Tensor ends = Tensor::of<float>({kInf, -kInf, NAN, 0.0F, -0.0F, 89.0F, -110.0F}, {7});
  expect_close(cpu::exp(ends), {kInf, 0, NAN, 1, 1, kInf, 0}, 0, 0);
}

TEST(Elementwise, NonFiniteValuesPassAsInC) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::of<float>({-kInf, kInf, NAN, -0.0F, -200.0F}, {5});
  expect_close(cpu::relu(x), {0, kInf, NAN, 0, 0}, 0, 0);
  expect_close(cpu::silu(x), {NAN, kInf, NAN, 0, 0}, 0, 0);
}

TEST(Elementwise, IntegersAddAndWrap) {
  const Tensor a = Tensor::of<int64_t>({1, -2, std::numeric_limits<int64_t>::max()}, {3});
  EXPECT_EQ(cpu::add(a, Tensor::of<int64_t>({1}, {1})).to_vector<int64_t>(),
            (std::vector<int64_t>{2, -1, std::numeric_limits<int64_t>::min()}));
  EXPECT_EQ(cpu::scale(a.narrow(0, 0, 2), -3).to_vector<int64_t>(), (std::vector<int64_t>{-3, 6}));
  EXPECT_EQ(cpu::add_scalar(a.narrow(0, 0, 2), -3).to_vector<int64_t>(),
            (std::vector<int64_t>{-2, -5}));
  const Tensor b = Tensor::of<int32_t>({7, -3, 5, 0, 1}, {5});
  EXPECT_EQ(cpu::neg(b).to_vector<int32_t>(), (std::vector<int32_t>{-7, 3, -5, 0, -1}));
  EXPECT_EQ(cpu::mul(b, b).to_vector<int32_t>(), (std::vector<int32_t>{49, 9, 25, 0, 1}));
}

TEST(Elementwise, ErrorsNameWhatWasFound) {
  const Tensor f = Tensor::zeros({2, 3});
  EXPECT_THROW(cpu::add(f, f.to(DType::kFloat64)), ArgumentError);
  EXPECT_THROW(cpu::add(f, Tensor::zeros({2})), ArgumentError);
  EXPECT_THROW(cpu::silu_mul(f, Tensor::zeros({3})), ArgumentError);
  EXPECT_THROW(cpu::exp(Tensor::zeros({2}, DType::kInt64)), ArgumentError);
  EXPECT_THROW(cpu::add(f.to(DType::kFloat16), f.to(DType::kFloat16)), ArgumentError);
  EXPECT_EQ(cpu::broadcast_shape({3, 1}, {1, 0}), (Shape{3, 0}));
  EXPECT_EQ(cpu::add(Tensor::zeros({3, 1}), Tensor::zeros({1, 0})).numel(), 0);
  try {
    cpu::mul(Tensor::zeros({4, 3}), Tensor::zeros({2}));
    FAIL();
  } catch (const ArgumentError& e) {
    EXPECT_NE(std::string(e.what()).find("[4,3] and [2]"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace dtensor
