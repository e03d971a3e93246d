#include "dtensor/ops/cpu/adamw.h"

#include <gtest/gtest.h>

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

DType state_dtype(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

class Optimizers : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Optimizers, testing::floating_dtypes(), testing::dtype_test_name);

TEST_P(Optimizers, AdamWFollowsItsFormulaOverSteps) {
  const DType dtype = GetParam();
  const Tensor p = random({7, 33}, dtype, 1);
  const Tensor m = Tensor::zeros({7, 33}, state_dtype(dtype));
  const Tensor v = Tensor::zeros({7, 33}, state_dtype(dtype));
  Values wp = values(p);
  Values wm(wp.size(), 0.0);
  Values wv(wp.size(), 0.0);
  const cpu::AdamWStep base{.lr = 0.02, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1};
  for (int64_t n = 1; n <= 4; ++n) {
    const Tensor g = random({7, 33}, dtype, 10 + static_cast<uint64_t>(n));
    const Values wg = values(g);
    cpu::AdamWStep step = base;
    step.step = n;
    const uint64_t before = p.storage()->version();
    cpu::adamw_step(p, g, m, v, step);
    EXPECT_NE(p.storage()->version(), before);
    const double c1 = 1 - std::pow(0.9, static_cast<double>(n));
    const double c2 = 1 - std::pow(0.95, static_cast<double>(n));
    for (size_t i = 0; i < wp.size(); ++i) {
      wp[i] -= 0.02 * 0.1 * wp[i];
      wm[i] = 0.9 * wm[i] + 0.1 * wg[i];
      wv[i] = 0.95 * wv[i] + 0.05 * wg[i] * wg[i];
      wp[i] -= 0.02 * (wm[i] / c1) / (std::sqrt(wv[i] / c2) + 1e-8);
    }
    // A step is at most about lr; its relative error a few roundings. bf16 rounds p each time.
    const double tolerance = dtype == DType::kBFloat16  ? 4 * epsilon(dtype)
                             : dtype == DType::kFloat64 ? 4e-15
                                                        : 3e-7;
    expect_close(p, wp, tolerance, tolerance * 0.1);
    expect_close(m, wm, 4 * epsilon(state_dtype(dtype)), 4 * epsilon(state_dtype(dtype)));
    expect_close(v, wv, 8 * epsilon(state_dtype(dtype)), 0);
  }
}

TEST_P(Optimizers, SgdFollowsItsFormulaOverSteps) {
  const DType dtype = GetParam();
  const Tensor p = random({33}, dtype, 2);
  const Tensor plain = p.clone();
  const Tensor velocity = Tensor::zeros({33}, state_dtype(dtype));
  Values wp = values(p);
  Values wplain = wp;
  Values wv(wp.size(), 0.0);
  for (uint64_t n = 0; n < 3; ++n) {
    const Tensor g = random({33}, dtype, 20 + n);
    cpu::sgd_step(p, g, velocity, {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01});
    cpu::sgd_step(plain, g, {}, {.lr = 0.1, .weight_decay = 0.01});
    for (size_t i = 0; i < wp.size(); ++i) {
      wv[i] = 0.9 * wv[i] + values(g)[i] + 0.01 * wp[i];
      wp[i] -= 0.1 * wv[i];
      wplain[i] -= 0.1 * (values(g)[i] + 0.01 * wplain[i]);
    }
  }
  const double tolerance = 6 * epsilon(dtype);
  expect_close(p, wp, tolerance, tolerance);
  expect_close(plain, wplain, tolerance, tolerance);
}

TEST_P(Optimizers, PiecesStridesAndThreadsDoNotChangeBits) {
  const DType dtype = GetParam();
  const Tensor g = random({100'003}, dtype, 3);
  const Tensor start = random({100'003}, dtype, 4);
  const Tensor m0 = random({100'003}, state_dtype(dtype), 5);
  const Tensor v0 = random({100'003}, state_dtype(dtype), 6, 0, 1);
  const cpu::AdamWStep step{.lr = 0.01, .weight_decay = 0.1, .step = 3};
  const auto run = [&] {
    const Tensor p = start.clone();
    cpu::adamw_step(p, g, m0.clone(), v0.clone(), step);
    return bits(p);
  };
  const std::vector<char> want = run();
  EXPECT_EQ(with_threads(3, run), want);
  const Tensor p = start.clone();
  const Tensor m = m0.clone();
  const Tensor v = v0.clone();
  for (const auto& [begin, count] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 7}, {7, 50'000}, {50'007, 0}, {50'007, 49'996}}) {
    cpu::adamw_step(p.narrow(0, begin, count), g.narrow(0, begin, count), m.narrow(0, begin, count),
                    v.narrow(0, begin, count), step);
  }
  EXPECT_EQ(bits(p), want);
  const Tensor gaps = strided(start);
  cpu::adamw_step(gaps, strided(g), strided(m0), v0.clone(), step);
  EXPECT_EQ(bits(gaps.clone()), want);
}

// AdamW's first step is lr * sign(g) whatever the size of g, down to the smallest normal squares.
TEST(AdamW, TinyAndHugeGradientsGiveStepsOfOneLr) {
  for (const float size : {1e-15F, 1e-6F, 1.0F, 1e15F}) {
    const Tensor p = Tensor::zeros({3});
    const Tensor g = Tensor::of<float>({size, -size, 0.0F}, {3});
    cpu::adamw_step(p, g, Tensor::zeros({3}), Tensor::zeros({3}), {.lr = 0.5, .eps = 0.0});
    const auto got = p.to_vector<float>();
    EXPECT_NEAR(got[0], -0.5, 1e-6) << size;
    EXPECT_NEAR(got[1], 0.5, 1e-6) << size;
  }
  const Tensor p = Tensor::zeros({1});
  cpu::adamw_step(p, Tensor::zeros({1}), Tensor::zeros({1}), Tensor::zeros({1}), {.lr = 0.5});
  EXPECT_EQ(p.to_vector<float>()[0], 0.0F);  // sqrt(0) + eps divides nothing by zero
}

TEST(OptimizerErrors, StateMustFit) {
  const Tensor p = Tensor::zeros({3});
  EXPECT_THROW(cpu::adamw_step(p, p, p, Tensor::zeros({2}), {}), ArgumentError);
  EXPECT_THROW(cpu::adamw_step(p, p, p.to(DType::kBFloat16), p, {}), ArgumentError);
  EXPECT_THROW(cpu::adamw_step(p, Tensor::zeros({3}, DType::kInt64), p, p, {}), ArgumentError);
  EXPECT_THROW(cpu::sgd_step(p, p, {}, {.momentum = 0.9}), ArgumentError);
}

}  // namespace
}  // namespace dtensor
