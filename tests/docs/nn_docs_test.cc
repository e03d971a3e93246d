// The C++ of docs/nn.md.

#include <gtest/gtest.h>

#include <vector>

#include "dtensor/nn/layers.h"
#include "dtensor/nn/lora.h"
#include "dtensor/nn/mixed_precision.h"
#include "dtensor/nn/module.h"
#include "dtensor/ops/ops.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

class Mlp : public nn::Module {
 public:
  Mlp() : up_(8, 32, {.bias = true}), down_(32, 8) {
    add_child("up", up_);
    add_child("down", down_);
  }
  std::string_view kind() const override { return "Mlp"; }

 protected:
  DTensor forward(const nn::Inputs& in) override { return down_(relu(up_(in[0]))); }

 private:
  nn::Linear up_, down_;
};

// One step's loss on any mesh: parameters are whole on every rank, the batch is cut by rows.
double data_parallel_loss(const Tensor& batch, const DeviceMesh& mesh) {
  Mlp net;
  nn::init_normal(net, /*seed=*/1);
  nn::replicate(net, mesh);
  const DTensor x = distribute(batch, mesh, {Shard(0)});
  DTensor loss = mean(net(x));
  loss.backward();  // every parameter's gradient is summed over the ranks by one all-reduce
  return loss.item();
}

DTensor in_bf16(const DTensor& x) {
  Mlp net;
  nn::init_normal(net, 1);
  nn::mixed_precision(net, DType::kBFloat16);  // parameters and gradients stay float32
  return cast(net(x), DType::kFloat32);
}

std::vector<nn::Parameter> adapters_of(nn::Module& model) {
  nn::add_lora(model, {.rank = 4, .linears = {"up"}});
  return nn::trainable_parameters(model);
}

TEST(NnDocs, RunAsPrinted) {
  const Tensor batch = randn({6, 8}, {}, {}, {.seed = 3}).local_tensor();
  testing::run_ranks(2, [&](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Mlp net;
    nn::init_normal(net, 1);
    EXPECT_NEAR(data_parallel_loss(batch, mesh), mean(net(DTensor(batch))).item(), 1e-7);
  });
  EXPECT_EQ(in_bf16(DTensor(batch)).dtype(), DType::kFloat32);
  Mlp base;
  EXPECT_EQ(adapters_of(base).size(), 2U);
}

}  // namespace
}  // namespace dtensor
