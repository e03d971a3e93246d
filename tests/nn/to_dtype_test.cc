#include "dtensor/nn/to_dtype.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "dtensor/base/allocator.h"
#include "dtensor/base/error.h"
#include "dtensor/nn/deferred_init.h"
#include "dtensor/tests/support/models.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/support/values.h"

namespace dtensor::nn {
namespace {

using testing::Mlp;

TEST(ToDType, RoundsTheParametersAndKeepsWhatTheyAre) {
  testing::run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Mlp net({});
    init_normal(net, 1, 1.0);
    replicate(net, mesh);
    net.up.weight.place(Layout(mesh.layout(), net.up.weight.value().shape(), {Shard(0)}));
    const Parameter weight = net.up.weight;
    const Tensor before = weight.value().local_tensor();
    to_dtype(net, DType::kBFloat16);
    const DTensor& after = weight.value();
    EXPECT_EQ(after.dtype(), DType::kBFloat16);
    EXPECT_TRUE(after.requires_grad());
    EXPECT_TRUE(after.is_leaf());
    EXPECT_EQ(after.spec().placement(0), Shard(0));
    std::vector<float> want;  // the nearest, by the definition of the type's one constructor
    for (const float x : before.to_vector<float>()) want.push_back(static_cast<float>(BFloat16(x)));
    EXPECT_EQ(after.local_tensor().to(DType::kFloat32).to_vector<float>(), want);
    const Tensor x = testing::random({4, 3}, 1).to(DType::kBFloat16);
    EXPECT_EQ(net(nn::Inputs{replicate(DTensor(x), mesh)}[0]).dtype(), DType::kBFloat16);
  });
}

TEST(ToDType, RefusesIntegers) {
  Mlp net({});
  EXPECT_THROW(to_dtype(net, DType::kInt32), ArgumentError);
  EXPECT_EQ(net.up.weight.value().dtype(), DType::kFloat32);
}

TEST(ToDType, OfADescribedModel) {
  testing::run_ranks(3, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}}, {0, 1});
    std::unique_ptr<Mlp> net;
    {
      const DeferredInit deferred;
      net = std::make_unique<Mlp>(Mlp::Sizes{});
    }
    const auto file = make_heap_allocator();
    net->up.weight.set_memory(file);
    to_dtype(*net, DType::kBFloat16);  // on no mesh
    EXPECT_TRUE(is_described(net->up.weight.value()));
    EXPECT_EQ(net->up.weight.value().dtype(), DType::kBFloat16);
    EXPECT_TRUE(net->up.weight.value().requires_grad());
    replicate(*net, mesh);
    to_dtype(*net, DType::kFloat16);  // on one
    materialize(*net);
    for (const auto& [name, p] : net->named_parameters()) {
      EXPECT_EQ(p.value().dtype(), DType::kFloat16) << name;
      EXPECT_FALSE(is_described(p.value())) << name;
      if (!p.value().has_local()) continue;
      const Tensor local = p.value().local_tensor().to(DType::kFloat32);
      EXPECT_EQ(local.to_vector<float>(),
                std::vector<float>(static_cast<size_t>(local.numel()), 0.0F));
    }
    EXPECT_EQ(file->stats().live_bytes > 0, world.rank() < 2);
  });
}

}  // namespace
}  // namespace dtensor::nn
