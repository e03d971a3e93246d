#include "dtensor/ops/cpu/conv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "dtensor/ops/cpu/pool.h"
#include "dtensor/tests/ops/cpu/reference.h"

namespace dtensor {
namespace {

using testing::bits;
using testing::epsilon;
using testing::random;
using testing::strided;
using testing::Values;
using testing::values;
using testing::with_threads;

class Conv : public ::testing::TestWithParam<DType> {};

// <g, conv(x)> = <dx, x> = <dw, w>: the gradients are the adjoints of a product that is linear in
// each. Blocks of several output rows, two groups, ten images in eight slices.
TEST_P(Conv, GradientsAreAdjoints) {
  const cpu::Window window{{3, 2}, {2, 1}, {1, 2}, {1, 2}};
  const Tensor x = random({10, 2, 3, 41, 30}, GetParam(), 1);
  const Tensor w = random({2, 4, 3, 3, 2}, GetParam(), 2);
  const Tensor y = cpu::conv2d(x, w, window);
  const Tensor g = random(y.shape(), GetParam(), 3);
  const auto dot = [](const Tensor& a, const Tensor& b) {
    const Values p = values(a);
    const Values q = values(b);
    double sum = 0.0;
    for (size_t i = 0; i < p.size(); ++i) sum += p[i] * q[i];
    return sum;
  };
  const double want = dot(g, y);
  // Each element is rounded once, and errors of both signs add up like the root of their number.
  const double rounding = GetParam() == DType::kFloat16 ? 1.0 / 2048 : epsilon(GetParam());
  const double tolerance = rounding * 30 * std::sqrt(dot(g, g));
  EXPECT_NEAR(dot(cpu::conv2d_dx(g, w, window, {41, 30}), x), want, tolerance);
  EXPECT_NEAR(dot(cpu::conv2d_dw(x, g, window), w), want, tolerance);
}

TEST_P(Conv, TakesStridedOperandsAndThreadsDoNotChangeBits) {
  const cpu::Window window{{3, 3}, {1, 1}, {1, 1}, {1, 1}};
  const Tensor x = random({3, 2, 4, 60, 50}, GetParam(), 1);
  const Tensor w = random({2, 5, 4, 3, 3}, GetParam(), 2);
  const Tensor g = random({3, 2, 5, 60, 50}, GetParam(), 3);
  const auto run = [&] {
    return std::vector{bits(cpu::conv2d(x, w, window)),
                       bits(cpu::conv2d_dx(g, w, window, {60, 50})),
                       bits(cpu::conv2d_dw(x, g, window)),
                       bits(cpu::max_pool2d(x, window)),
                       bits(cpu::max_pool2d_backward(x, x, window)),
                       bits(cpu::avg_pool2d(x, window)),
                       bits(cpu::avg_pool2d_backward(x, window, {60, 50}))};
  };
  EXPECT_EQ(with_threads(1, run), with_threads(3, run));
  EXPECT_EQ(bits(cpu::conv2d(strided(x), strided(w), window)), bits(cpu::conv2d(x, w, window)));
  EXPECT_EQ(bits(cpu::conv2d_dw(strided(x), strided(g), window)),
            bits(cpu::conv2d_dw(x, g, window)));
  EXPECT_EQ(bits(cpu::max_pool2d(strided(x), window)), bits(cpu::max_pool2d(x, window)));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Conv,
                         ::testing::Values(DType::kFloat32, DType::kFloat64, DType::kBFloat16,
                                           DType::kFloat16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace dtensor
