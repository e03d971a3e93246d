// The C++ of docs/optim.md.

#include <gtest/gtest.h>

#include "dtensor/nn/layers.h"
#include "dtensor/ops/ops.h"
#include "dtensor/optim/adamw.h"
#include "dtensor/optim/clip_grad_norm.h"
#include "dtensor/optim/grad_scaler.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

double train_step(nn::Module& net, optim::Optimizer& optimizer, const DTensor& x) {
  DTensor loss = mean(net(x));
  loss.backward();
  const double norm = optim::clip_grad_norm(net.parameters(), 1.0);
  optimizer.step();
  optimizer.zero_grad();
  return norm;
}

bool scaled_step(nn::Module& net, optim::Optimizer& optimizer, optim::GradScaler& scaler,
                 const DTensor& x) {
  DTensor loss = scaler.scale(mean(net(x)));
  loss.backward();
  scaler.unscale(net.parameters());
  optim::clip_grad_norm(net.parameters(), 1.0);
  const bool stepped = scaler.step(optimizer);
  scaler.update();
  optimizer.zero_grad();
  return stepped;
}

TEST(OptimDocs, RunAsPrinted) {
  testing::run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    nn::Linear net(3, 2);
    nn::init_normal(net, 1);
    nn::replicate(net, mesh);
    optim::AdamW optimizer(net.parameters(), {.lr = 0.1});
    EXPECT_GT(train_step(net, optimizer, randn({4, 3}, mesh)), 0.0);
    EXPECT_EQ(optimizer.steps(), 1);
    optim::GradScaler scaler;
    EXPECT_TRUE(scaled_step(net, optimizer, scaler, randn({4, 3}, mesh)));
    EXPECT_EQ(optimizer.steps(), 2);
  });
}

}  // namespace
}  // namespace dtensor
