#include "dtensor/ops/cpu/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
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

constexpr int64_t kIgnore = -100;

struct Reference {
  double loss = 0;
  Values gradient;
};

// Over all classes, in double. loss is the sum; the gradient that of factor * sum.
Reference reference(const Values& x, const std::vector<int64_t>& targets, size_t v, double factor) {
  Reference out;
  for (size_t row = 0; row < targets.size(); ++row) {
    double max = -INFINITY;
    for (size_t c = 0; c < v; ++c) max = std::max(max, x[row * v + c]);
    double sum = 0;
    for (size_t c = 0; c < v; ++c) sum += std::exp(x[row * v + c] - max);
    const bool counts = targets[row] != kIgnore;
    const auto target = static_cast<size_t>(counts ? targets[row] : 0);
    if (counts) out.loss += std::log(sum) + max - x[row * v + target];
    for (size_t c = 0; c < v; ++c) {
      const double p = std::exp(x[row * v + c] - max) / sum;
      out.gradient.push_back(counts ? (p - (c == target ? 1 : 0)) * factor : 0.0);
    }
  }
  return out;
}

class CrossEntropy : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, CrossEntropy, testing::floating_dtypes(),
                         testing::dtype_test_name);

// The classes are cut in pieces, as ranks would hold them; what ranks all-reduce is reduced here.
// Among them ignored rows, and rows whose target another piece holds.
TEST_P(CrossEntropy, PiecesOfTheClassesAddUpToTheWhole) {
  const int64_t v = 53;
  const Tensor logits = random({2, 5, v}, GetParam(), 1, -8, 8);
  const std::vector<int64_t> list = {0, 52, kIgnore, 17, 18, 36, kIgnore, 35, 51, 1};
  const Tensor targets = Tensor::of(std::span<const int64_t>(list), {2, 5});
  constexpr double kFactor = 1.0 / 8;
  const Reference want = reference(values(logits), list, v, kFactor);
  const double accumulated = epsilon(GetParam() == DType::kFloat64 ? GetParam() : DType::kFloat32);
  for (const std::vector<int64_t>& cuts : {std::vector<int64_t>{0, v}, {0, 18, 36, v}, {0, 0, v}}) {
    Tensor max;
    Values sums(10, 0.0);
    std::vector<Tensor> pieces;
    for (size_t p = 0; p + 1 < cuts.size(); ++p) {
      pieces.push_back(logits.narrow(2, cuts[p], cuts[p + 1] - cuts[p]));
      const Tensor m = cpu::row_max(pieces.back());
      Values most = values(m);
      if (max.defined()) {
        for (size_t i = 0; i < most.size(); ++i) most[i] = std::max(most[i], values(max)[i]);
      }
      max = Tensor::of(std::span<const double>(most), m.shape()).to(m.dtype());
    }
    for (const Tensor& piece : pieces) {
      const Values s = values(cpu::row_sum_exp(strided(piece), max));
      for (size_t i = 0; i < s.size(); ++i) sums[i] += s[i];
    }
    const Tensor sum = Tensor::of(std::span<const double>(sums), max.shape()).to(max.dtype());
    double loss = 0;
    for (size_t p = 0; p < pieces.size(); ++p) {
      const cpu::ClassPart part{{cuts[p], cuts[p + 1]}, kIgnore};
      loss += values(cpu::cross_entropy_loss(pieces[p], {max, sum}, targets, part, kFactor))[0];
      Values mine;
      for (size_t i = 0; i < want.gradient.size(); ++i) {
        const auto c = static_cast<int64_t>(i % v);
        if (c >= cuts[p] && c < cuts[p + 1]) mine.push_back(want.gradient[i]);
      }
      expect_close(cpu::cross_entropy_backward(pieces[p], {max, sum}, targets, part, kFactor), mine,
                   20 * epsilon(GetParam()), 4 * epsilon(GetParam()) * kFactor);
    }
    EXPECT_NEAR(loss, want.loss * kFactor, 8 * accumulated * want.loss);
  }
  EXPECT_EQ(cpu::count_valid(targets, kIgnore), 8);
  EXPECT_EQ(cpu::count_valid(targets, std::nullopt), 10);
  const cpu::SoftmaxStats both = cpu::softmax_stats(logits);
  EXPECT_EQ(bits(both.max), bits(cpu::row_max(logits)));
  EXPECT_EQ(bits(both.sum), bits(cpu::row_sum_exp(logits, both.max)));
}

TEST_P(CrossEntropy, LargeLogitsDoNotOverflow) {
  const Tensor logits = Tensor::of<float>({1e4F, -1e4F, 0, 1e4F}, {2, 2}).to(GetParam());
  const cpu::SoftmaxStats stats = cpu::softmax_stats(logits);
  const Tensor targets = Tensor::of<int64_t>({0, 1}, {2});
  expect_close(cpu::cross_entropy_loss(logits, stats, targets, {.classes = {0, 2}}, 1), {0}, 0, 0);
  expect_close(cpu::cross_entropy_backward(logits, stats, targets, {.classes = {0, 2}}, 1),
               {0, 0, 0, 0}, 0, 0);
}

TEST_P(CrossEntropy, EmptyPiecesAndNoRows) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const Tensor none = Tensor::zeros({3, 0}, GetParam());
  EXPECT_EQ(values(cpu::row_max(none)), (Values{-kInf, -kInf, -kInf}));
  EXPECT_EQ(values(cpu::row_sum_exp(none, cpu::row_max(none))), (Values{0, 0, 0}));
  const Tensor no_rows = Tensor::zeros({0, 4}, GetParam());
  const cpu::SoftmaxStats stats = cpu::softmax_stats(no_rows);
  const Tensor targets = Tensor::zeros({0}, DType::kInt64);
  const cpu::ClassPart part{.classes = {0, 4}};
  EXPECT_EQ(values(cpu::cross_entropy_loss(no_rows, stats, targets, part, 1)), (Values{0}));
  EXPECT_EQ(cpu::cross_entropy_backward(no_rows, stats, targets, part, 1).shape(), (Shape{0, 4}));
}

TEST_P(CrossEntropy, ThreadsDoNotChangeBits) {
  const Tensor logits = random({700, 260}, GetParam(), 2);
  std::vector<int64_t> list(700);
  for (size_t i = 0; i < list.size(); ++i) list[i] = static_cast<int64_t>(i * 7 % 260);
  const Tensor targets = Tensor::of(std::span<const int64_t>(list), {700});
  const cpu::ClassPart part{.classes = {0, 260}};
  const auto run = [&] {
    const cpu::SoftmaxStats stats = cpu::softmax_stats(logits);
    return std::vector{bits(stats.max), bits(stats.sum),
                       bits(cpu::cross_entropy_loss(logits, stats, targets, part, 0.5)),
                       bits(cpu::cross_entropy_backward(logits, stats, targets, part, 0.5))};
  };
  EXPECT_EQ(with_threads(1, run), with_threads(3, run));
}

TEST(CrossEntropyErrors, ShapesMustFit) {
  const Tensor logits = Tensor::zeros({3, 4});
  const cpu::SoftmaxStats stats = cpu::softmax_stats(logits);
  const Tensor targets = Tensor::zeros({3}, DType::kInt64);
  EXPECT_THROW(cpu::row_sum_exp(logits, Tensor::zeros({4})), ArgumentError);
  EXPECT_THROW(cpu::row_max(Tensor::zeros({})), ArgumentError);
  EXPECT_THROW(cpu::cross_entropy_loss(logits, stats, targets, {.classes = {0, 5}}, 1),
               ArgumentError);
  EXPECT_THROW(
      cpu::cross_entropy_loss(logits, stats, targets.narrow(0, 0, 2), {.classes = {0, 4}}, 1),
      ArgumentError);
}

}  // namespace
}  // namespace dtensor
