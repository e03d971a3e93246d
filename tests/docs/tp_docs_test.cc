// The C++ of docs/tp.md.

#include <gtest/gtest.h>

#include "dtensor/nn/layers.h"
#include "dtensor/nn/lora.h"
#include "dtensor/ops/ops.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tests/support/models.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tp/parallelize_module.h"

namespace dtensor {
namespace {

void tensor_parallel(nn::Module& net, const DeviceMesh& mesh) {
  tp::parallelize_module(net, mesh["tp"],
                         {{"blocks.*.up", tp::Colwise{}}, {"blocks.*.down", tp::Rowwise{}}});
}

void train_adapters_only(nn::Module& net, const DeviceMesh& mesh) {
  tp::parallelize_module(net, mesh["tp"],
                         {{"blocks.*.up", tp::Colwise{}}, {"blocks.*.down", tp::Rowwise{}}});
  nn::add_lora(net, {.rank = 4, .linears = {"up", "down"}});
}

// The residual stream is cut along dim 1; a block gathers it once and scatters its result.
void sequence_parallel(nn::Module& net, const DeviceMesh& mesh) {
  tp::parallelize_module(net, mesh["tp"],
                         {{"blocks.*", tp::PrepareInput{{Replicate()}}},
                          {"blocks.*.up", tp::Colwise{}},
                          {"blocks.*.down", tp::Rowwise{Shard(1)}}});
}

TEST(TpDocs, RunAsPrinted) {
  testing::run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"tp", 2}});
    const Tensor data = testing::random({2, 4, 3}, 1);
    testing::Stack single({});
    nn::init_normal(single, 1);
    const double want = mean(single(DTensor(data))).item();
    testing::Stack net({});
    nn::init_normal(net, 1);
    tensor_parallel(net, mesh);
    EXPECT_NEAR(mean(net(replicate(DTensor(data), mesh))).item(), want, 1e-6);
    testing::Stack adapted({});
    nn::init_normal(adapted, 1);
    train_adapters_only(adapted, mesh);
    EXPECT_NEAR(mean(adapted(replicate(DTensor(data), mesh))).item(), want, 1e-6);
    testing::Stack sequence({});
    nn::init_normal(sequence, 1);
    sequence_parallel(sequence, mesh);
    EXPECT_NEAR(mean(sequence(distribute(data, mesh, {Shard(1)}))).item(), want, 1e-6);
  });
}

}  // namespace
}  // namespace dtensor
