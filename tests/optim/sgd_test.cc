#include "dtensor/optim/sgd.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtensor/mesh/device_mesh.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::optim {
namespace {

// Four steps of one element with gradient 1, 2, 3, 4 times its number, in double.
double expected(double p, int number, const SGDOptions& o) {
  double v = 0.0;
  for (int step = 1; step <= 4; ++step) {
    const double g = number * step + o.weight_decay * p;
    v = o.momentum * v + g;
    p -= o.lr * v;
  }
  return p;
}

void check(const DeviceMesh& mesh, std::initializer_list<Placement> placements,
           const SGDOptions& options) {
  const auto on = [&](const Tensor& t) {
    return mesh.defined() ? distribute(t, mesh, placements) : DTensor(t);
  };
  const nn::Parameter p(on(Tensor::of<float>({1, 2, 3}, {3})));
  SGD optimizer({p}, options);
  for (int step = 1; step <= 4; ++step) {
    const auto s = static_cast<float>(step);
    p.value().set_grad(on(Tensor::of<float>({s, 2 * s, 3 * s}, {3})));
    optimizer.step();
  }
  const auto got = full(p.value()).to_vector<float>();
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(got[static_cast<size_t>(i)], expected(i + 1, i + 1, options), 1e-5);
  }
}

TEST(SGD, UpdatesWithAndWithoutMomentum) {
  check({}, {}, {.lr = 0.01});
  check({}, {}, {.lr = 0.01, .momentum = 0.9, .weight_decay = 0.1});
}

TEST(SGD, UpdatesPieces) {
  testing::run_ranks(4, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 4}});
    check(mesh, {Shard(0)}, {.lr = 0.01, .momentum = 0.9, .weight_decay = 0.1});  // 1,1,1,0
    check(mesh, {Replicate()}, {.lr = 0.01, .momentum = 0.9});
  });
}

TEST(SGD, UpdatesAParameterThatIsListedTwiceOnce) {
  const nn::Parameter p(DTensor(Tensor::zeros({1})));
  const nn::Parameter q(DTensor(Tensor::zeros({1})));
  SGD optimizer({p, q, p}, {.lr = 1.0, .momentum = 0.5});
  EXPECT_EQ(optimizer.parameters().size(), 2U);
  EXPECT_EQ(optimizer.state().size(), 2U);
  p.value().set_grad(DTensor(Tensor::full({1}, 1.0)));
  optimizer.step();
  EXPECT_EQ(p.value().local_tensor().to_vector<float>(), std::vector<float>{-1});
}

TEST(SGD, HasStateOnlyWithMomentum) {
  const nn::Parameter p(DTensor(Tensor::zeros({3})));
  EXPECT_TRUE(SGD({p}, {}).state().empty());
  const auto state = SGD({p}, {.momentum = 0.9}).state();
  ASSERT_EQ(state.size(), 1U);
  EXPECT_EQ(state[0].state, "momentum_buffer");
}

}  // namespace
}  // namespace dtensor::optim
