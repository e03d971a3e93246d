// The C++ of docs/fsdp.md.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "dtensor/fsdp/fully_shard.h"
#include "dtensor/fsdp/trace.h"
#include "dtensor/nn/deferred_init.h"
#include "dtensor/ops/ops.h"
#include "dtensor/tests/support/models.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/support/values.h"

namespace dtensor {
namespace {

void shard(testing::Stack& net, const DeviceMesh& mesh) {
  for (auto& block : net.blocks) fsdp::fully_shard(*block, mesh["dp"]);
  fsdp::fully_shard(net, mesh["dp"],
                    {.param_dtype = DType::kBFloat16, .reduce_dtype = DType::kFloat32});
}

void accumulate_gradients(nn::Module& net, const std::vector<DTensor>& microbatches) {
  for (size_t i = 0; i < microbatches.size(); ++i) {
    DTensor y = cast(net(microbatches[i]), DType::kFloat32);
    DTensor loss = mul(mean(y), 1.0 / static_cast<double>(microbatches.size()));
    loss.backward({.defer = i + 1 < microbatches.size()});  // reduced once, by the last
  }
}

std::unique_ptr<testing::Stack> sharded_from_the_start(const DeviceMesh& mesh) {
  std::unique_ptr<testing::Stack> net;
  {
    const nn::DeferredInit deferred;  // parameters have shapes, and no memory
    net = std::make_unique<testing::Stack>(testing::Stack::Sizes{.width = 4, .blocks = 2});
  }
  for (auto& block : net->blocks) fsdp::fully_shard(*block, mesh["dp"]);
  fsdp::fully_shard(*net, mesh["dp"]);
  nn::materialize(*net);     // this rank's shards
  nn::init_normal(*net, 1);  // the bits of a model that was not deferred; or checkpoint::load
  return net;
}

std::string trace_of_a_step(nn::Module& net, const DTensor& x) {
  auto& trace = Context::current().slot<fsdp::Trace>();
  trace.recording = true;
  DTensor loss = mean(net(x));
  loss.backward();
  return to_text(trace);  // or to_perfetto(trace, rank)
}

TEST(FsdpDocs, RunAsPrinted) {
  testing::run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    testing::Stack net({});
    nn::init_normal(net, 1);
    shard(net, mesh);
    const DTensor x = testing::rows(testing::random({4, 3}, 1), mesh, {"dp"});
    accumulate_gradients(net, {x, x});
    EXPECT_EQ(net.head.weight.value().grad().layout().placement(0), Shard(0));
    EXPECT_EQ(fsdp::stats().live_groups, 0);
    const auto described = sharded_from_the_start(mesh);
    testing::Stack plain({.width = 4, .blocks = 2});
    nn::init_normal(plain, 1);
    EXPECT_EQ(testing::parameter_values(*described), testing::parameter_values(plain));
    const DTensor y = testing::rows(testing::random({4, 4}, 1), mesh, {"dp"});
    EXPECT_NE(trace_of_a_step(*described, y).find("reduce    blocks.1"), std::string::npos);
  });
}

}  // namespace
}  // namespace dtensor
