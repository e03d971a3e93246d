#include "dtensor/optim/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::optim {
namespace {

// PyTorch's AdamW of one element, in double.
struct Reference {
  double p, m = 0.0, v = 0.0;
  int step = 0;
  void update(double g, const AdamWOptions& o) {
    ++step;
    p -= o.lr * o.weight_decay * p;
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    const double m_hat = m / (1 - std::pow(o.beta1, step));
    const double v_hat = v / (1 - std::pow(o.beta2, step));
    p -= o.lr * m_hat / (std::sqrt(v_hat) + o.eps);
  }
};

const AdamWOptions kOptions{
    .lr = 0.1, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.3};

nn::Parameter parameter(const DTensor& value) {
  nn::Parameter p(value);
  p.value().set_requires_grad(true);
  return p;
}

DTensor like(const DTensor& value, const Tensor& whole) {
  return value.mesh().defined() ? distribute(whole, value.mesh(), value.layout()) : DTensor(whole);
}

// pytorch: each parameter has its own "step". One that is thawed late starts as one that is new.
TEST(AdamW, CorrectsAParameterByItsOwnUpdates) {
  const nn::Parameter early = parameter(DTensor(Tensor::full({1}, 1)));
  const nn::Parameter late = parameter(DTensor(Tensor::full({1}, 1)));
  AdamW optimizer({early, late}, kOptions);
  Reference want_early{1.0};
  Reference want_late{1.0};
  const DTensor g(Tensor::full({1}, 0.25));
  for (int step = 0; step < 12; ++step) {
    early.value().set_grad(g);
    want_early.update(0.25, kOptions);
    if (step >= 9) {
      late.value().set_grad(g);
      want_late.update(0.25, kOptions);
    }
    optimizer.step();
    optimizer.zero_grad();
  }
  EXPECT_EQ(optimizer.steps(), 12);
  EXPECT_EQ(optimizer.updates(), (std::vector<int64_t>{12, 3}));
  EXPECT_NEAR(early.value().item(), want_early.p, 1e-6);
  EXPECT_NEAR(late.value().item(), want_late.p, 1e-6);
  EXPECT_THROW(optimizer.set_updates({1}), ArgumentError);
}

// Five elements, four steps; the tolerance is some roundings to float32 of numbers near 1.
void check_on(const DTensor& value, double tolerance) {
  const nn::Parameter p = parameter(value);
  AdamW optimizer({p}, kOptions);
  std::vector<Reference> want;
  for (int i = 0; i < 5; ++i) want.push_back({0.5 * i - 1.0});
  for (int step = 0; step < 4; ++step) {
    Tensor g = Tensor::empty({5});
    for (int i = 0; i < 5; ++i) {
      g.data<float>()[i] = static_cast<float>(0.25 * (i + 1) * (step % 2 == 0 ? 1 : -0.5));
      want[static_cast<size_t>(i)].update(g.data<float>()[i], kOptions);
    }
    p.value().set_grad(like(p.value(), g.to(p.value().dtype())));
    optimizer.step();
    optimizer.zero_grad();
    EXPECT_FALSE(p.value().grad().defined());
  }
  EXPECT_EQ(optimizer.steps(), 4);
  const std::vector<float> got = full(p.value()).to(DType::kFloat32).to_vector<float>();
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(got[i], want[i].p, tolerance) << i;
  for (const auto& s : optimizer.state()) {
    EXPECT_TRUE(s.value.layout() == p.value().layout()) << s.state;
    EXPECT_EQ(s.value.dtype(), DType::kFloat32);
  }
}

Tensor start() { return Tensor::of<float>({-1.0F, -0.5F, 0.0F, 0.5F, 1.0F}, {5}); }

TEST(AdamW, UpdatesAsPyTorchDoes) { check_on(DTensor(start()), 2e-6); }

TEST(AdamW, UpdatesPiecesOfAnyPlacement) {
  testing::run_ranks(4, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}, {"tp", 2}});
    check_on(distribute(start(), mesh, {Replicate(), Replicate()}), 2e-6);
    check_on(distribute(start(), mesh, {Replicate(), Shard(0)}), 2e-6);
    check_on(distribute(start(), mesh, {Shard(0), Shard(0)}), 2e-6);  // 2,1,1,1
  });
}

// Small steps vanish in bf16 (8 bits): the master copy keeps them.
TEST(AdamW, A16BitParameterHasAMasterCopy) {
  const nn::Parameter p = parameter(DTensor(Tensor::full({3}, 1.0, DType::kBFloat16)));
  AdamW optimizer({p}, {.lr = 1e-3, .weight_decay = 0.0});
  for (int step = 0; step < 8; ++step) {
    p.value().set_grad(DTensor(Tensor::full({3}, 1.0, DType::kBFloat16)));
    optimizer.step();
  }
  // Equal gradients: every step is lr (to eps), 8e-3 in all; bf16 near 1 has steps of 2^-8.
  std::map<std::string, DTensor> state;
  for (const auto& s : optimizer.state()) state[s.state] = s.value;
  ASSERT_EQ(state.count("master"), 1U);
  for (const float x : state["master"].local_tensor().to_vector<float>()) {
    EXPECT_NEAR(x, 0.992F, 2e-6);
  }
  const auto bits = p.value().local_tensor().to_vector<BFloat16>();
  EXPECT_EQ(static_cast<float>(bits[0]), 0.9921875F);
}

TEST(AdamW, TheMasterCopyFollowsAParameterThatWasLoaded) {
  const nn::Parameter p = parameter(DTensor(Tensor::full({2}, 1.0, DType::kBFloat16)));
  AdamW optimizer({p}, {.lr = 1e-3, .weight_decay = 0.0});
  static_cast<void>(optimizer.state());
  p.value().local_tensor().data<BFloat16>()[1] = BFloat16(4.0F);
  p.value().set_grad(DTensor(Tensor::full({2}, 1.0, DType::kBFloat16)));
  optimizer.step();
  for (const auto& s : optimizer.state()) {
    if (s.state != "master") continue;
    EXPECT_NEAR(s.value.local_tensor().data<float>()[0], 0.999F, 1e-6);
    EXPECT_NEAR(s.value.local_tensor().data<float>()[1], 3.999F, 1e-6);
  }
}

TEST(AdamW, RefusesAGradientThatIsNotPlacedAsItsParameter) {
  testing::run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    const nn::Parameter ok = parameter(distribute(start(), mesh, {Replicate()}));
    const nn::Parameter bad = parameter(distribute(start(), mesh, {Replicate()}));
    ok.value().set_grad(distribute(start(), mesh, {Replicate()}));
    AdamW optimizer({ok, bad}, kOptions);
    bad.value().set_grad(distribute(start(), mesh, {Partial()}));
    EXPECT_THROW(optimizer.step(), PlacementError);
    bad.value().set_grad(distribute(start(), mesh, {Shard(0)}));
    EXPECT_THROW(optimizer.step(), PlacementError);
    EXPECT_EQ(optimizer.steps(), 0);  // nothing was changed
    EXPECT_EQ(ok.value().local_tensor().to_vector<float>(), start().to_vector<float>());
  });
}

TEST(AdamW, RefusesStateOfAnEarlierPlacement) {
  testing::run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    const nn::Parameter p = parameter(distribute(start(), mesh, {Replicate()}));
    AdamW optimizer({p}, kOptions);
    static_cast<void>(optimizer.state());
    p.place(p.value().layout().with(0, Shard(0)));
    EXPECT_THROW(static_cast<void>(optimizer.state()), PlacementError);
  });
}

// The first step of each element is lr against the sign of its gradient.
TEST(AdamW, UpdatesAParameterThatIsListedTwiceOnce) {
  const nn::Parameter p(DTensor(Tensor::zeros({1})));
  AdamW optimizer({p, p}, {.lr = 0.5, .eps = 0.0, .weight_decay = 0.0});
  EXPECT_EQ(optimizer.state().size(), 2U);
  p.value().set_grad(DTensor(Tensor::full({1}, 3.0)));
  optimizer.step();
  EXPECT_FLOAT_EQ(p.value().local_tensor().to_vector<float>()[0], -0.5F);
}

}  // namespace
}  // namespace dtensor::optim
