#include "dtensor/nn/to_dtype.h"

#include <gtest/gtest.h>

#include <vector>

#include "dtensor/base/error.h"
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

}  // namespace
}  // namespace dtensor::nn
