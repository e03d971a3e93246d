#include "dtensor/nn/mixed_precision.h"

#include <gtest/gtest.h>

#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/tests/support/models.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/support/values.h"

namespace dtensor::nn {
namespace {

using testing::Mlp;
using testing::values;

TEST(MixedPrecision, ComputesInBf16AndKeepsParametersAndGradients) {
  Mlp net({});
  init_normal(net, 1, 1.0);
  mixed_precision(net, DType::kBFloat16);
  DType inside = DType::kFloat32;
  net.down.add_pre_hook([&](const Inputs& in) {
    inside = in[0].dtype();
    EXPECT_EQ(net.down.weight.use().dtype(), DType::kBFloat16);
    return in;
  });
  const DTensor y = net(DTensor(testing::random({4, 3}, 1)));
  EXPECT_EQ(inside, DType::kBFloat16);
  EXPECT_EQ(y.dtype(), DType::kBFloat16);
  EXPECT_EQ(net.down.weight.use().dtype(), DType::kFloat32);  // after the call
  DTensor loss = sum(cast(y, DType::kFloat32));
  loss.backward();
  EXPECT_EQ(net.up.weight.value().grad().dtype(), DType::kFloat32);
}

TEST(MixedPrecision, LeavesNoCastBehindWhereForwardThrows) {
  Mlp net({});
  mixed_precision(net, DType::kBFloat16);
  net.down.add_pre_hook([](const Inputs&) -> Inputs { throw ArgumentError("no"); });
  EXPECT_THROW(net(DTensor(testing::random({4, 3}, 1))), ArgumentError);
  EXPECT_EQ(net.up.weight.use().dtype(), DType::kFloat32);
}

// y = x w by element: gradient of w is x. In bf16 256 + 1 is 256 and 256 + 1 + 1 + 2 any of 256,
// 258, 260; in float32 it is 260.
TEST(MixedPrecision, SumsGradientsOverRanksInFloat32) {
  class Scale : public Module {
   public:
    Scale() : weight(add_parameter("weight", {1})) {}
    std::string_view kind() const override { return "Scale"; }
    Parameter weight;

   protected:
    DTensor forward(const Inputs& in) override { return mul(in[0], weight.use()); }
  };
  testing::run_ranks(4, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 4}});
    const Tensor x = Tensor::of<float>({256, 1, 1, 3}, {4, 1});
    Scale net;
    replicate(net, mesh);
    mixed_precision(net, DType::kBFloat16);
    DTensor loss = sum(net(distribute(x, mesh, {Shard(0)})));
    loss.backward();
    EXPECT_EQ(values(net.weight.value().grad()), std::vector<float>{261});  // not in bf16
  });
}

TEST(MixedPrecision, RefusesWhatIsNotFloating) {
  Mlp net({});
  EXPECT_THROW(mixed_precision(net, DType::kInt32), ArgumentError);
}

}  // namespace
}  // namespace dtensor::nn
