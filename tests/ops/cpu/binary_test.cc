#include "dtensor/ops/cpu/binary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "dtensor/tests/ops/cpu/reference.h"

namespace dtensor {
namespace {

using cpu::BinaryOp;
using cpu::Side;
using testing::bits;
using testing::epsilon;
using testing::expect_close;
using testing::random;
using testing::strided;
using testing::Values;
using testing::values;
using testing::with_threads;

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Case {
  BinaryOp op;
  std::function<double(double, double)> want;
};

std::vector<Case> cases() {
  return {
      {BinaryOp::kAdd, [](double a, double b) { return a + b; }},
      {BinaryOp::kSub, [](double a, double b) { return a - b; }},
      {BinaryOp::kMul, [](double a, double b) { return a * b; }},
      {BinaryOp::kMaximum, [](double a, double b) { return std::fmax(a, b); }},
      {BinaryOp::kMinimum, [](double a, double b) { return std::fmin(a, b); }},
      {BinaryOp::kRemainder, [](double a, double b) { return a - b * std::floor(a / b); }},
      {BinaryOp::kDiv, [](double a, double b) { return a / b; }},
      {BinaryOp::kPow, [](double a, double b) { return std::pow(a, b); }},
      {BinaryOp::kAtan2, [](double a, double b) { return std::atan2(a, b); }},
      {BinaryOp::kEq, [](double a, double b) { return a == b ? 1 : 0; }},
      {BinaryOp::kNe, [](double a, double b) { return a != b ? 1 : 0; }},
      {BinaryOp::kLt, [](double a, double b) { return a < b ? 1 : 0; }},
      {BinaryOp::kLe, [](double a, double b) { return a <= b ? 1 : 0; }},
      {BinaryOp::kGt, [](double a, double b) { return a > b ? 1 : 0; }},
      {BinaryOp::kGe, [](double a, double b) { return a >= b ? 1 : 0; }},
      {BinaryOp::kAnd, [](double a, double b) { return a != 0 && b != 0 ? 1 : 0; }},
      {BinaryOp::kOr, [](double a, double b) { return a != 0 || b != 0 ? 1 : 0; }},
      {BinaryOp::kXor, [](double a, double b) { return (a != 0) != (b != 0) ? 1 : 0; }},
  };
}

// Element [i,j,k] of a tensor broadcast to [A,B,C].
double at(const Tensor& t, const Values& v, int64_t i, int64_t j, int64_t k) {
  const int64_t index[3] = {i, j, k};
  int64_t flat = 0;
  for (int d = 0; d < t.ndim(); ++d) {
    const int64_t n = t.shape()[d];
    flat = flat * n + (n == 1 ? 0 : index[3 - t.ndim() + d]);
  }
  return v[static_cast<size_t>(flat)];
}

Values zip(const Tensor& a, const Tensor& b, const Shape& shape,
           const std::function<double(double, double)>& f) {
  const Values va = values(a);
  const Values vb = values(b);
  Values out;
  const int n = shape.ndim();
  const int64_t dims[3] = {n > 2 ? shape[n - 3] : 1, n > 1 ? shape[n - 2] : 1,
                           n > 0 ? shape.back() : 1};
  for (int64_t i = 0; i < dims[0]; ++i) {
    for (int64_t j = 0; j < dims[1]; ++j) {
      for (int64_t k = 0; k < dims[2]; ++k)
        out.push_back(f(at(a, va, i, j, k), at(b, vb, i, j, k)));
    }
  }
  return out;
}

class Binary : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Binary, testing::floating_dtypes(), testing::dtype_test_name);

TEST_P(Binary, KernelsBroadcastFromTheRight) {
  ASSERT_EQ(cases().size(), static_cast<size_t>(BinaryOp::kXor) + 1);
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{4, 5, 19}, {4, 5, 19}}, {{4, 5, 19}, {19}},      {{4, 5, 19}, {5, 1}}, {{4, 1, 19}, {5, 1}},
      {{}, {4, 5, 19}},         {{4, 1, 1}, {1, 5, 19}}, {{1, 1, 1}, {}},      {{2, 700}, {2, 1}}};
  for (const auto& [sa, sb] : shapes) {
    for (const Case& c : cases()) {
      SCOPED_TRACE(cpu::info_of(c.op).name);
      const bool positive = c.op == BinaryOp::kPow || c.op == BinaryOp::kDiv;
      const double low = positive ? 0.25 : -4.0;
      // Halves: so that some are equal, and quotients are exact.
      const auto operand = [&](const Shape& shape, uint64_t seed) {
        Values v = values(random(shape, DType::kFloat64, seed, low, 4.0));
        for (double& x : v) x = std::ceil(2 * x) / 2;
        return Tensor::of(std::span<const double>(v), shape).to(GetParam());
      };
      const Tensor a = operand(sa, 5);
      const Tensor b = operand(sb, 6);
      const Shape shape = cpu::broadcast_shape(sa, sb);
      const Values want = zip(a, b, shape, c.want);
      const Tensor y = cpu::binary(c.op, a, b);
      EXPECT_EQ(y.shape(), shape);
      expect_close(y, want, 4 * epsilon(GetParam()), 0);
      EXPECT_EQ(bits(cpu::binary(c.op, strided(a), b)), bits(y));
      EXPECT_EQ(bits(cpu::binary(c.op, a, strided(b))), bits(y));
    }
  }
}

TEST_P(Binary, ANumberIsAScalarOfTheTypeComputedIn) {
  const Tensor x = random({6, 33}, GetParam(), 7, 0.5, 4.0);
  const auto expect = [&](const Tensor& y, const std::function<double(double)>& f) {
    Values want = values(x);
    for (double& v : want) v = f(v);
    expect_close(y, want, 4 * epsilon(GetParam()), 0);
  };
  // 0.1 is not a bf16: rounded to one it would be off by 1 in 1,600.
  expect(cpu::binary(BinaryOp::kMul, x, 0.1), [](double v) { return v * 0.1; });
  expect(cpu::binary(BinaryOp::kSub, 0.1, x), [](double v) { return 0.1 - v; });
  expect(cpu::binary(BinaryOp::kDiv, 3.0, x), [](double v) { return 3 / v; });
  expect(cpu::binary(BinaryOp::kPow, x, 3.0), [](double v) { return v * v * v; });
  expect(cpu::binary(BinaryOp::kMaximum, x, 2.0), [](double v) { return std::fmax(v, 2); });
  expect(cpu::binary(BinaryOp::kLt, x, 2.0), [](double v) { return v < 2 ? 1 : 0; });
}

TEST_P(Binary, WhereChoosesByAnyDtype) {
  const Tensor a = random({3, 700}, GetParam(), 8);
  const Tensor b = random({700}, GetParam(), 9);
  const Tensor condition = cpu::binary(BinaryOp::kGt, random({3, 1}, GetParam(), 10), 0.0);
  const Values flags = values(condition);
  const Values va = values(a);
  const Values vb = values(b);
  Values want;
  for (size_t i = 0; i < va.size(); ++i) want.push_back(flags[i / 700] != 0 ? va[i] : vb[i % 700]);
  expect_close(cpu::where(condition, a, b), want, 0, 0);
  expect_close(cpu::where(condition.to(DType::kInt32), strided(a), b), want, 0, 0);
  EXPECT_THROW(cpu::where(condition, a, b.to(DType::kInt32)), ArgumentError);
  // What is not 0 counts, also where it is in the dtype of a and b.
  const Tensor one = Tensor::of<int64_t>({1, 1, 1}, {3});
  const Tensor two = Tensor::of<int64_t>({2, 2, 2}, {3});
  expect_close(cpu::where(Tensor::of<float>({0.25F, 0, NAN}, {3}), one, two), {1, 2, 1}, 0, 0);
  expect_close(cpu::where(Tensor::of<double>({1e-60, 0, -1e-60}, {3}), one.to(GetParam()),
                          two.to(GetParam())),
               {1, 2, 1}, 0, 0);
}

TEST(Binary, ThreadsAndPositionDoNotChangeBits) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const Tensor a = random({200'003}, dtype, 9, 0.5, 5);
    const Tensor b = random({200'003}, dtype, 10, 0.5, 5);
    const auto run = [&] { return bits(cpu::binary(BinaryOp::kDiv, a, b)); };
    EXPECT_EQ(with_threads(1, run), with_threads(3, run));
    const Tensor piece = cpu::binary(BinaryOp::kDiv, a.narrow(0, 13, 1001), b.narrow(0, 13, 1001));
    EXPECT_EQ(bits(piece), bits(cpu::binary(BinaryOp::kDiv, a, b).narrow(0, 13, 1001).clone()));
  }
}

// Of f64 against central differences.
TEST(BinaryBackward, IsTheSlopeOnEachSide) {
  const Tensor a = random({3, 7}, DType::kFloat64, 11, 0.5, 3.0);
  const Tensor b = random({7}, DType::kFloat64, 12, 0.5, 3.0);
  const Tensor g = random({3, 7}, DType::kFloat64, 13);
  const Values vg = values(g);
  const auto check = [&](BinaryOp op, Side side) {
    SCOPED_TRACE(cpu::info_of(op).name);
    constexpr double kStep = 1e-6;
    const auto moved = [&](double by) {
      const Tensor x = cpu::binary(BinaryOp::kAdd, side == Side::kA ? a : b, by);
      return values(cpu::binary(op, side == Side::kA ? x : a, side == Side::kB ? x : b));
    };
    const Values above = moved(kStep);
    const Values below = moved(-kStep);
    Values want;
    for (size_t i = 0; i < vg.size(); ++i) {
      want.push_back(vg[i] * (above[i] - below[i]) / (2 * kStep));
    }
    expect_close(cpu::binary_backward(op, side, g, a, b), want, 1e-6, 1e-8);
  };
  for (const BinaryOp op : {BinaryOp::kMaximum, BinaryOp::kMinimum, BinaryOp::kRemainder,
                            BinaryOp::kPow, BinaryOp::kAtan2}) {
    check(op, Side::kA);
    check(op, Side::kB);
  }
  check(BinaryOp::kDiv, Side::kB);
  const Tensor same = cpu::binary_backward(BinaryOp::kMaximum, Side::kB, g, a, a);
  Values half = vg;
  for (double& v : half) v /= 2;
  expect_close(same, half, 0, 0);
  const Tensor zero = Tensor::zeros({2}, DType::kFloat64);
  const Tensor powers = Tensor::of<double>({2.0, 0.0}, {2});
  const Tensor one = Tensor::full({2}, 1.0, DType::kFloat64);
  expect_close(cpu::binary_backward(BinaryOp::kPow, Side::kA, one, zero, powers), {0, 0}, 0, 0);
  expect_close(cpu::binary_backward(BinaryOp::kPow, Side::kB, one, zero, powers), {0, 0}, 0, 0);
}

TEST(BinaryBackward, OfQuotientsAndAnglesNeitherOverflowsNorVanishes) {
  const Tensor x = Tensor::of<float>({1e25F, 1e-25F, 3}, {3});
  const Tensor g = Tensor::of<float>({1, 1, 1}, {3});
  const auto check = [&](BinaryOp op, Side side, const Values& want) {
    expect_close(cpu::binary_backward(op, side, g, x, x), want, 1e-6, 0);
  };
  check(BinaryOp::kDiv, Side::kB, {-1e-25, -1e25, -1.0 / 3});
  check(BinaryOp::kAtan2, Side::kA, {0.5e-25, 0.5e25, 0.5 / 3});
  check(BinaryOp::kAtan2, Side::kB, {-0.5e-25, -0.5e25, -0.5 / 3});
  const Tensor a = Tensor::of<float>({0, kInf, NAN}, {3});
  const Tensor b = Tensor::of<float>({0, 1, 1}, {3});
  expect_close(cpu::binary_backward(BinaryOp::kAtan2, Side::kA, g, a, b), {0, 0, NAN}, 0, 0);
}

TEST(BinaryBackward, TakesANumberThatIsNotRounded) {
  const Tensor x = Tensor::full({2}, 0.1, DType::kBFloat16);
  const Tensor g = Tensor::full({2}, 1.0, DType::kBFloat16);
  const Tensor number = Tensor::full({}, 0.1, DType::kFloat32);
  expect_close(cpu::binary_backward(BinaryOp::kMaximum, Side::kA, g, x, number), {1, 1}, 0, 0);
  EXPECT_THROW(cpu::binary_backward(BinaryOp::kMaximum, Side::kA, g, x, number.expand({2})),
               ArgumentError);
}

TEST(Binary, IntegersWrapAndDivideByFloor) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  using V = std::vector<int64_t>;
  const auto of = [](BinaryOp op, const Tensor& a, const Tensor& b) {
    return cpu::binary(op, a, b).to(DType::kInt64).to_vector<int64_t>();
  };
  const Tensor a = Tensor::of<int64_t>({1, -7, kMost, kLeast}, {4});
  const Tensor b = Tensor::of<int64_t>({1, 3, 1, -1}, {4});
  EXPECT_EQ(of(BinaryOp::kAdd, a, b), (V{2, -4, kLeast, kMost}));
  EXPECT_EQ(of(BinaryOp::kMul, a, b), (V{1, -21, kMost, kLeast}));
  EXPECT_EQ(of(BinaryOp::kMaximum, a, b), (V{1, 3, kMost, -1}));
  EXPECT_EQ(of(BinaryOp::kRemainder, a, b), (V{0, 2, 0, 0}));
  EXPECT_EQ(of(BinaryOp::kLt, a, b), (V{0, 1, 0, 1}));
  // Of more digits than a double has.
  const Tensor c = Tensor::of<int64_t>({kMost - 1}, {1});
  EXPECT_EQ(of(BinaryOp::kEq, c, Tensor::of<int64_t>({kMost}, {1})), (V{0}));
  const Tensor small = Tensor::of<int32_t>({2'000'000'000, -5}, {2});
  EXPECT_EQ(of(BinaryOp::kAdd, small, small), (V{-294'967'296, -10}));
  EXPECT_EQ(
      of(BinaryOp::kXor, Tensor::of<bool>({true, true}, {2}), Tensor::of<bool>({false, true}, {2})),
      (V{1, 0}));
}

TEST(Binary, NanIsNotEqualAndIsTheExtreme) {
  const Tensor a = Tensor::of<float>({NAN, 1, NAN}, {3});
  const Tensor b = Tensor::of<float>({1, NAN, NAN}, {3});
  expect_close(cpu::binary(BinaryOp::kMaximum, a, b), {NAN, NAN, NAN}, 0, 0);
  expect_close(cpu::binary(BinaryOp::kMinimum, a, b), {NAN, NAN, NAN}, 0, 0);
  expect_close(cpu::binary(BinaryOp::kEq, a, b), {0, 0, 0}, 0, 0);
  expect_close(cpu::binary(BinaryOp::kNe, a, b), {1, 1, 1}, 0, 0);
  expect_close(cpu::binary(BinaryOp::kGe, a, b), {0, 0, 0}, 0, 0);
}

TEST(Binary, ErrorsNameWhatWasFound) {
  const Tensor f = Tensor::zeros({2, 3});
  const Tensor n = Tensor::zeros({2}, DType::kInt64);
  EXPECT_THROW(cpu::add(f, f.to(DType::kFloat64)), ArgumentError);
  EXPECT_THROW(cpu::add(f, Tensor::zeros({2})), ArgumentError);
  EXPECT_THROW(cpu::binary(BinaryOp::kDiv, n, n), ArgumentError);
  EXPECT_THROW(cpu::binary(BinaryOp::kRemainder, n, n), ArgumentError);
  EXPECT_THROW(cpu::add(n.to(DType::kBool), n.to(DType::kBool)), ArgumentError);
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
