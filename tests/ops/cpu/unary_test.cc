#include "dtensor/ops/cpu/unary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "dtensor/tests/ops/cpu/reference.h"

namespace dtensor {
namespace {

using cpu::Numbers;
using cpu::UnaryOp;
using testing::bits;
using testing::epsilon;
using testing::expect_close;
using testing::random;
using testing::strided;
using testing::Values;
using testing::values;

constexpr float kInf = std::numeric_limits<float>::infinity();

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double normal_below(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

struct Case {
  UnaryOp op;
  std::function<double(double)> want;
  double low = -9.0;
  double high = 9.0;
  Numbers numbers = {};
  double absolute = 0.0;  // in units of epsilon: what an answer near 0 cancels to
};

// The largest slope is known, so that an error of the operand by one rounding stays in bounds: the
// operands are exact.
std::vector<Case> cases() {
  return {
      {UnaryOp::kNeg, [](double x) { return -x; }},
      {UnaryOp::kAbs, [](double x) { return std::fabs(x); }},
      {UnaryOp::kSign, [](double x) { return x > 0   ? 1.0
                                             : x < 0 ? -1.0
                                                     : 0.0; }},
      {UnaryOp::kSquare, [](double x) { return x * x; }},
      {UnaryOp::kRelu, [](double x) { return x > 0 ? x : 0.0; }},
      {UnaryOp::kClamp,
       [](double x) { return std::fmin(std::fmax(x, -2), 3.5); },
       -9,
       9,
       {-2, 3.5}},
      {UnaryOp::kExp, [](double x) { return std::exp(x); }},
      {UnaryOp::kExpm1, [](double x) { return std::expm1(x); }},
      {UnaryOp::kLog, [](double x) { return std::log(x); }, 1e-3, 20.0, {}, 1},
      {UnaryOp::kLog1p, [](double x) { return std::log1p(x); }, -0.99, 20.0},
      {UnaryOp::kLog2, [](double x) { return std::log2(x); }, 1e-3, 20.0},
      {UnaryOp::kSqrt, [](double x) { return std::sqrt(x); }, 0.0, 20.0},
      {UnaryOp::kRsqrt, [](double x) { return 1 / std::sqrt(x); }, 1e-3, 20.0},
      {UnaryOp::kReciprocal, [](double x) { return 1 / x; }},
      {UnaryOp::kSin, [](double x) { return std::sin(x); }},
      {UnaryOp::kCos, [](double x) { return std::cos(x); }},
      {UnaryOp::kTan, [](double x) { return std::tan(x); }, -1.5, 1.5},
      {UnaryOp::kAtan, [](double x) { return std::atan(x); }},
      {UnaryOp::kTanh, [](double x) { return std::tanh(x); }},
      {UnaryOp::kSigmoid, sigmoid},
      {UnaryOp::kErf, [](double x) { return std::erf(x); }},
      {UnaryOp::kLeakyRelu, [](double x) { return x < 0 ? 0.25 * x : x; }, -9, 9, {0.25}},
      {UnaryOp::kElu, [](double x) { return x < 0 ? 0.75 * std::expm1(x) : x; }, -9, 9, {0.75}},
      {UnaryOp::kSilu, [](double x) { return x * sigmoid(x); }},
      {UnaryOp::kGelu, [](double x) { return x * normal_below(x); }, -9, 9, {}, 9},
      {UnaryOp::kGeluTanh, gelu_tanh, -9, 9, {}, 9},
      {UnaryOp::kSoftplus, [](double x) { return std::log1p(std::exp(2 * x)) / 2; }, -9, 9, {2}},
      {UnaryOp::kFloor, [](double x) { return std::floor(x); }},
      {UnaryOp::kCeil, [](double x) { return std::ceil(x); }},
      {UnaryOp::kRound, [](double x) { return std::nearbyint(x); }},
      {UnaryOp::kTrunc, [](double x) { return std::trunc(x); }},
      {UnaryOp::kIsNan, [](double) { return 0.0; }},
      {UnaryOp::kIsFinite, [](double) { return 1.0; }},
      {UnaryOp::kLogicalNot, [](double x) { return x == 0 ? 1.0 : 0.0; }},
  };
}

class Unary : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Unary,
                         ::testing::Values(DType::kFloat32, DType::kFloat64, DType::kBFloat16,
                                           DType::kFloat16),
                         testing::dtype_test_name);

// f16 has 11 bits.
double rounding(DType dtype) { return dtype == DType::kFloat16 ? 0x1p-11 : epsilon(dtype); }

TEST_P(Unary, KernelsEqualPlainLoops) {
  ASSERT_EQ(cases().size(), static_cast<size_t>(UnaryOp::kLogicalNot) + 1);
  // Below 2^-14 f16 has fewer bits.
  const double least = GetParam() == DType::kFloat16 ? 0x1p-25 : 1e-30;
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{5, 37}, Shape{3, 0, 2}, Shape{2, 3, 5, 71}}) {
    for (const Case& c : cases()) {
      SCOPED_TRACE(cpu::info_of(c.op).name);
      const Tensor x = random(shape, GetParam(), 1, c.low, c.high);
      Values want = values(x);
      for (double& v : want) v = c.want(v);
      const Tensor y = cpu::unary(c.op, x, c.numbers);
      EXPECT_EQ(y.dtype(), cpu::info_of(c.op).to_bool ? DType::kBool : GetParam());
      expect_close(y, want, 8 * rounding(GetParam()), least + c.absolute * rounding(GetParam()));
      EXPECT_EQ(bits(cpu::unary(c.op, strided(x), c.numbers)), bits(y));
    }
  }
}

// Of f64 against central differences, which err by h^2 f''' / 6 and 1e-16 f / h.
TEST(UnaryBackward, IsTheSlope) {
  for (const Case& c : cases()) {
    if (cpu::info_of(c.op).saves == cpu::UnarySaves::kNoGradient) continue;
    if (cpu::info_of(c.op).saves == cpu::UnarySaves::kNothing) continue;
    SCOPED_TRACE(cpu::info_of(c.op).name);
    const double low = std::max(c.low, c.low > 0 ? 0.25 : -3.0);
    const Tensor x =
        random({41}, DType::kFloat64, 5, low < 0 && c.low < -1 ? -3.0 : low + 0.1, 3.0);
    const Tensor g = random({41}, DType::kFloat64, 6);
    const Tensor y = cpu::unary(c.op, x, c.numbers);
    const bool input = cpu::info_of(c.op).saves == cpu::UnarySaves::kInput;
    const Tensor dx = cpu::unary_backward(c.op, g, input ? x : y, c.numbers);
    Values want;
    constexpr double kStep = 1e-5;
    for (int64_t i = 0; i < x.numel(); ++i) {
      const double at = x.data<double>()[i];
      want.push_back(g.data<double>()[i] * (c.want(at + kStep) - c.want(at - kStep)) / (2 * kStep));
    }
    expect_close(dx, want, 1e-5, 1e-8);
    // The other dtypes differ by roundings of g, of what is saved and of the result.
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const Tensor rough =
          cpu::unary_backward(c.op, g.to(dtype), (input ? x : y).to(dtype), c.numbers);
      EXPECT_EQ(rough.dtype(), dtype);
      const Tensor exact =
          cpu::unary_backward(c.op, g.to(dtype).to(DType::kFloat64),
                              (input ? x : y).to(dtype).to(DType::kFloat64), c.numbers);
      expect_close(rough, values(exact), 8 * epsilon(dtype), 4 * epsilon(dtype));
    }
  }
}

TEST(Unary, ExpIsWithinOneUlpAndRightAtItsEnds) {
  std::vector<float> x;
  for (int i = 0; i < 200'000; ++i) x.push_back(-87.0F + 175.0F * static_cast<float>(i) / 200'000);
  const Tensor y = cpu::exp(Tensor::of(std::span<const float>(x), {200'000}));
  const auto got = y.to_vector<float>();
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::exp(static_cast<double>(x[i]));
    const float next = std::nextafter(static_cast<float>(want), INFINITY);
    ASSERT_NEAR(got[i], want, 1.05 * (next - static_cast<float>(want))) << x[i];
  }
  const Tensor ends = Tensor::of<float>({kInf, -kInf, NAN, 0.0F, -0.0F, 89.0F, -110.0F}, {7});
  expect_close(cpu::exp(ends), {kInf, 0, NAN, 1, 1, kInf, 0}, 0, 0);
}

// log, tanh and erf by polynomials: within a few units in the last place.
TEST(Unary, PolynomialsAreCloseOverTheirWholeRange) {
  std::vector<float> positive;
  std::vector<float> both;
  for (int i = 0; i < 100'000; ++i) {
    positive.push_back(std::exp2(-140.0F + 267.0F * static_cast<float>(i) / 100'000));
    both.push_back(-6.0F + 12.0F * static_cast<float>(i) / 100'000);
  }
  const auto check = [](UnaryOp op, const std::vector<float>& x, double (*want)(double)) {
    const auto n = static_cast<int64_t>(x.size());
    const auto got = cpu::unary(op, Tensor::of(std::span<const float>(x), {n})).to_vector<float>();
    for (size_t i = 0; i < x.size(); ++i) {
      const double w = want(x[i]);
      ASSERT_NEAR(got[i], w, 3 * 0x1p-23 * std::fabs(w) + 0x1p-140) << x[i];
    }
  };
  check(UnaryOp::kLog, positive, [](double x) { return std::log(x); });
  check(UnaryOp::kTanh, both, [](double x) { return std::tanh(x); });
  check(UnaryOp::kErf, both, [](double x) { return std::erf(x); });
}

TEST(Unary, NonFiniteValuesPassAsInC) {
  const Tensor x = Tensor::of<float>({-kInf, kInf, NAN, -0.0F, -200.0F}, {5});
  const auto expect = [&](UnaryOp op, const Values& want) {
    SCOPED_TRACE(cpu::info_of(op).name);
    expect_close(cpu::unary(op, x, {-1, 1}), want, 1e-6, 0);
  };
  expect(UnaryOp::kRelu, {0, kInf, NAN, 0, 0});
  expect(UnaryOp::kSilu, {NAN, kInf, NAN, 0, 0});
  expect(UnaryOp::kLog, {NAN, kInf, NAN, -kInf, NAN});
  expect(UnaryOp::kSqrt, {NAN, kInf, NAN, 0, NAN});
  expect(UnaryOp::kTanh, {-1, 1, NAN, 0, -1});
  expect(UnaryOp::kErf, {-1, 1, NAN, 0, -1});
  expect(UnaryOp::kSigmoid, {0, 1, NAN, 0.5, 0});
  expect(UnaryOp::kClamp, {-1, 1, NAN, 0, -1});
  expect(UnaryOp::kIsNan, {0, 0, 1, 0, 0});
  expect(UnaryOp::kIsFinite, {0, 0, 0, 1, 1});
  expect(UnaryOp::kLogicalNot, {0, 0, 0, 1, 0});
}

TEST(Unary, IntegersWrapAndFloatingOpsRefuseThem) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  const Tensor x = Tensor::of<int64_t>({7, -3, 0, kLeast}, {4});
  const auto of = [&](UnaryOp op, const Tensor& t) {
    return cpu::unary(op, t, {-2, 5}).to(DType::kInt64).to_vector<int64_t>();
  };
  using V = std::vector<int64_t>;
  EXPECT_EQ(of(UnaryOp::kNeg, x), (V{-7, 3, 0, kLeast}));
  EXPECT_EQ(of(UnaryOp::kAbs, x), (V{7, 3, 0, kLeast}));
  EXPECT_EQ(of(UnaryOp::kSign, x), (V{1, -1, 0, -1}));
  EXPECT_EQ(of(UnaryOp::kSquare, x), (V{49, 9, 0, 0}));
  EXPECT_EQ(of(UnaryOp::kRelu, x), (V{7, 0, 0, 0}));
  EXPECT_EQ(of(UnaryOp::kClamp, x), (V{5, -2, 0, -2}));
  EXPECT_EQ(of(UnaryOp::kLogicalNot, x), (V{0, 0, 1, 0}));
  const Tensor small = Tensor::of<int8_t>({7, -3, 0, -128}, {4});
  EXPECT_EQ(of(UnaryOp::kNeg, small), (V{-7, 3, 0, -128}));
  const Tensor flags = Tensor::of<bool>({true, false}, {2});
  EXPECT_EQ(of(UnaryOp::kLogicalNot, flags), (V{0, 1}));
  EXPECT_THROW(cpu::unary(UnaryOp::kNeg, flags), ArgumentError);
  EXPECT_THROW(cpu::unary(UnaryOp::kExp, x), ArgumentError);
  EXPECT_THROW(cpu::unary(UnaryOp::kFloor, Tensor::zeros({0}, DType::kInt32)), ArgumentError);
}

}  // namespace
}  // namespace dtensor
