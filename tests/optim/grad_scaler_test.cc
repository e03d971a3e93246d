#include "dtensor/optim/grad_scaler.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/optim/sgd.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/ledger.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::optim {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

nn::Parameter ones(const DeviceMesh& mesh) {
  nn::Parameter p(distribute(Tensor::full({5}, 1.0), mesh, {Shard(0)}));
  p.value().set_requires_grad(true);
  return p;
}

void set_grad(const nn::Parameter& p, const std::vector<float>& values) {
  p.value().set_grad(distribute(Tensor::of<float>(values, {5}), p.value().mesh(), {Shard(0)}));
}

std::vector<float> whole(const DTensor& t) { return full(t).to_vector<float>(); }

TEST(GradScaler, DividesGradientsByTheScaleOfTheLoss) {
  testing::run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"x", 2}});
    const nn::Parameter p = ones(mesh);
    GradScaler scaler({.scale = 8.0});
    EXPECT_EQ(scaler.scale(DTensor(Tensor::full({}, 3.0))).item(), 24.0);
    set_grad(p, {8, 16, 24, 32, 40});
    SGD optimizer({p}, {.lr = 1.0});
    auto& ledger = Context::current().slot<Ledger>();
    ledger.clear();
    EXPECT_TRUE(scaler.step(optimizer));
    EXPECT_EQ(ledger.entries().size(), 1U);  // one all-reduce of one number
    EXPECT_EQ(whole(p.value().grad()), (std::vector<float>{1, 2, 3, 4, 5}));
    EXPECT_EQ(whole(p.value()), (std::vector<float>{0, -1, -2, -3, -4}));
  });
}

// The overflow is on one rank only.
TEST(GradScaler, LeavesOutAStepOnEveryRankWhereOneHasNoFiniteGradient) {
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    testing::run_ranks(3, [&](comm::Comm& world) {
      const DeviceMesh mesh(world, {{"x", 3}});
      const nn::Parameter p = ones(mesh);
      SGD optimizer({p}, {.lr = 1.0});
      GradScaler scaler({.scale = 8.0, .backoff = 0.25, .growth_interval = 2});
      set_grad(p, {1, 1, 1, 1, bad});
      EXPECT_FALSE(scaler.step(optimizer));
      EXPECT_EQ(scaler.current(), 8.0);
      scaler.update();
      EXPECT_EQ(scaler.current(), 2.0);
      EXPECT_EQ(whole(p.value()), std::vector<float>(5, 1.0F));
      EXPECT_EQ(optimizer.steps(), 0);
      for (const double want : {2.0, 4.0, 4.0, 8.0}) {  // grows after two good steps in a row
        set_grad(p, {0, 0, 0, 0, 0});
        EXPECT_TRUE(scaler.step(optimizer));
        scaler.update();
        EXPECT_EQ(scaler.current(), want);
      }
    });
  }
}

TEST(GradScaler, UnscalesOnceBetweenTwoSteps) {
  testing::run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"x", 2}});
    const nn::Parameter p = ones(mesh);
    SGD optimizer({p}, {.lr = 1.0});
    GradScaler scaler({.scale = 2.0});
    set_grad(p, {2, 2, 2, 2, 2});
    scaler.unscale({p});
    EXPECT_THROW(scaler.unscale({p}), ArgumentError);
    EXPECT_TRUE(scaler.step(optimizer));
    EXPECT_THROW(scaler.step(optimizer), ArgumentError);
    EXPECT_EQ(optimizer.steps(), 1);
    scaler.update();
    EXPECT_THROW(scaler.update(), ArgumentError);
    EXPECT_EQ(whole(p.value()), std::vector<float>(5, 0.0F));
    scaler.restore(16.0, 1);
    EXPECT_EQ(scaler.current(), 16.0);
    EXPECT_EQ(scaler.good_steps(), 1);
  });
}

// One loss for two optimizers: gradients are divided by one scale, which is adapted once.
TEST(GradScaler, ServesTwoOptimizers) {
  testing::run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"x", 2}});
    const nn::Parameter p = ones(mesh);
    const nn::Parameter q = ones(mesh);
    const nn::Parameter shared = ones(mesh);
    SGD first({p, shared}, {.lr = 1.0});
    SGD second({q, shared}, {.lr = 1.0});
    GradScaler scaler({.scale = 8.0, .growth_interval = 1});
    for (const nn::Parameter& each : {p, q, shared}) set_grad(each, {8, 8, 8, 8, 8});
    EXPECT_TRUE(scaler.step(first));
    EXPECT_TRUE(scaler.step(second));
    for (const nn::Parameter& each : {p, q, shared}) {
      EXPECT_EQ(whole(each.value().grad()), std::vector<float>(5, 1.0F));
    }
    EXPECT_EQ(whole(q.value()), std::vector<float>(5, 0.0F));
    scaler.update();
    EXPECT_EQ(scaler.current(), 16.0);
    // What is not finite leaves out the step of its own optimizer, and cuts the scale.
    set_grad(p, {1, 1, 1, 1, kInfinity});
    for (const nn::Parameter& each : {q, shared}) set_grad(each, {16, 16, 16, 16, 16});
    scaler.unscale({p});
    scaler.unscale({q, shared});
    EXPECT_FALSE(scaler.step(first));
    EXPECT_TRUE(scaler.step(second));
    scaler.update();
    EXPECT_EQ(scaler.current(), 8.0);
    EXPECT_EQ(whole(p.value()), std::vector<float>(5, 0.0F));
    EXPECT_EQ(whole(q.value()), std::vector<float>(5, -1.0F));
  });
}

TEST(GradScaler, RefusesOptionsThatMakeNoSense) {
  EXPECT_THROW(GradScaler({.scale = 0.0}), ArgumentError);
  EXPECT_THROW(GradScaler({.scale = double{kInfinity}}), ArgumentError);
  EXPECT_THROW(GradScaler({.growth = 0.5}), ArgumentError);
  EXPECT_THROW(GradScaler({.backoff = 0.0}), ArgumentError);
  EXPECT_THROW(GradScaler({.backoff = 1.5}), ArgumentError);
}

}  // namespace
}  // namespace dtensor::optim
