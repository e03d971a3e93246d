#include "dtensor/nn/layers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/tests/support/models.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/support/values.h"

namespace dtensor::nn {
namespace {

using testing::piece;
using testing::random;
using testing::worst;

// x wᵀ + b by a loop.
std::vector<float> product(const std::vector<float>& x, const std::vector<float>& w,
                           const std::vector<float>& b, size_t in, size_t out) {
  std::vector<float> y;
  for (size_t r = 0; r < x.size() / in; ++r) {
    for (size_t o = 0; o < out; ++o) {
      double sum = b.empty() ? 0.0 : b[o];
      for (size_t i = 0; i < in; ++i) sum += double{x[r * in + i]} * w[o * in + i];
      y.push_back(static_cast<float>(sum));
    }
  }
  return y;
}

TEST(Linear, MultipliesByRowsOfItsWeightAndAddsItsBias) {
  for (const bool bias : {false, true}) {
    Linear net(3, 4, {.bias = bias, .out_unit = 2, .in_unit = 3});
    EXPECT_EQ(net.weight.unit(0), 2);
    EXPECT_EQ(net.weight.unit(1), 3);
    EXPECT_EQ(net.bias.defined(), bias);
    init_normal(net, 1, 1.0);
    if (bias) {
      EXPECT_EQ(net.bias.unit(0), 2);
      net.bias.value().replace(DTensor(random({4}, 2)));
    }
    const DTensor x(random({2, 5, 3}, 3));
    const DTensor y = net(x);
    EXPECT_EQ(y.shape(), (Shape{2, 5, 4}));
    const auto b = bias ? piece(net.bias.value()) : std::vector<float>{};
    EXPECT_LT(worst(piece(y), product(piece(x), piece(net.weight.value()), b, 3, 4)), 1e-5);
  }
}

TEST(Linear, TiesItsWeight) {
  Embedding table(4, 3);
  Linear head(3, 4);
  init_normal(table, 1, 1.0);
  head.tie_weight(table.weight);
  EXPECT_TRUE(head.weight == table.weight);
  const DTensor x(random({2, 3}, 3));
  EXPECT_LT(worst(piece(head(x)), product(piece(x), piece(table.weight.value()), {}, 3, 4)), 1e-5);
  Linear other(4, 3);
  EXPECT_THROW(other.tie_weight(table.weight), ArgumentError);
}

TEST(Embedding, TakesRows) {
  Embedding table(4, 2);
  init_normal(table, 1, 1.0);
  const std::vector<float> w = piece(table.weight.value());
  const DTensor y = table(DTensor(Tensor::of<int64_t>({3, 0, 3}, {3, 1})));
  EXPECT_EQ(y.shape(), (Shape{3, 1, 2}));
  EXPECT_EQ(piece(y), (std::vector<float>{w[6], w[7], w[0], w[1], w[6], w[7]}));
}

TEST(RMSNorm, DividesByTheRootOfTheMeanSquare) {
  RMSNorm norm(3, 0.5);
  norm.weight.value().replace(DTensor(Tensor::of<float>({1, 2, 3}, {3})));
  const std::vector<float> y = piece(norm(DTensor(Tensor::of<float>({1, 2, 4}, {1, 3}))));
  const float scale = 1.0F / std::sqrt(21.0F / 3 + 0.5F);
  EXPECT_LT(worst(y, {scale, 4 * scale, 12 * scale}), 1e-6);
}

// One head of size 1, keys all alike: every query gets the mean of the values it sees.
TEST(AttentionCore, IsCausalFromItsOffsetOn) {
  AttentionCore core;
  const DTensor q(Tensor::full({1, 2, 1, 1, 1}, 1.0));
  const DTensor k(Tensor::full({1, 4, 1, 1}, 1.0));
  const DTensor v(Tensor::of<float>({1, 2, 6, 11}, {1, 4, 1, 1}));
  EXPECT_LT(worst(piece(core(q, k, v)), {1, 1.5F}), 1e-6);
  core.query_offset = 2;
  EXPECT_LT(worst(piece(core(q, k, v)), {3, 5}), 1e-6);
}

}  // namespace
}  // namespace dtensor::nn
