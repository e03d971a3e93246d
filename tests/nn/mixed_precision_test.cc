#include "dtensor/nn/mixed_precision.h"

#include <gtest/gtest.h>

#include <functional>
#include <span>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/tensor/recompute.h"
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

// Two Linears with a region around the second: as without one, forward and backward.
class Recomputing : public Mlp {
 public:
  explicit Recomputing(bool again) : Mlp({}), again_(again) {}

 protected:
  DTensor forward(const Inputs& in) override {
    const Region region = [this](std::span<const DTensor> x) {
      EXPECT_EQ(down.weight.use().dtype(), x[0].dtype());
      return down(relu(x[0]));
    };
    const DTensor h = up(in[0]);
    return again_ ? recomputed(region, {h}) : region(Inputs{h});
  }

 private:
  bool again_;
};

std::vector<std::vector<float>> gradients_of(Module& net, const std::function<DTensor()>& loss) {
  loss().backward();
  std::vector<std::vector<float>> all;
  for (const Parameter& p : net.parameters()) all.push_back(values(p.value().grad()));
  return all;
}

TEST(MixedPrecision, ARegionComputedAgainUsesTheSameCasts) {
  std::vector<std::vector<std::vector<float>>> results;
  for (const bool again : {false, true}) {
    Recomputing net(again);
    init_normal(net, 1, 1.0);
    mixed_precision(net, DType::kBFloat16);
    const DTensor x(testing::random({4, 3}, 1));
    results.push_back(gradients_of(net, [&] {
      // The second forward's region runs again while neither is open.
      return sum(cast(add(net(x), net(mul(x, 2.0))), DType::kFloat32));
    }));
    EXPECT_EQ(net.down.weight.use().dtype(), DType::kFloat32);  // after backward
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(MixedPrecision, OfAModuleInsideLeavesTheOuterOne) {
  for (const DType inner : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    std::vector<std::vector<std::vector<float>>> results;
    for (const bool again : {false, true}) {
      testing::Stack net({});
      init_normal(net, 1, 1.0);
      mixed_precision(net, DType::kBFloat16);
      mixed_precision(*net.blocks[0], inner);
      int seen = 0;
      net.blocks[0]->down.add_pre_hook([&](const Inputs& in) {
        EXPECT_EQ(net.blocks[0]->down.weight.use().dtype(), inner);
        EXPECT_EQ(net.head.weight.use().dtype(), DType::kBFloat16);
        ++seen;
        return in;
      });
      // After the module inside: its parameters are the outer one's again.
      net.blocks[0]->add_post_hook([](const DTensor& y) { return cast(y, DType::kBFloat16); });
      net.head.add_pre_hook([&](const Inputs& in) {
        EXPECT_EQ(net.blocks[0]->down.weight.use().dtype(), DType::kBFloat16);
        return in;
      });
      const DTensor x(testing::random({4, 3}, 1));
      const auto forward = [&](std::span<const DTensor> in) { return net(in[0]); };
      DTensor wanted = x.detach();
      wanted.set_requires_grad(true);
      results.push_back(gradients_of(net, [&] {
        return sum(cast(again ? recomputed(forward, {wanted}) : net(wanted), DType::kFloat32));
      }));
      EXPECT_EQ(seen, again ? 2 : 1);
      EXPECT_EQ(net.blocks[0]->down.weight.use().dtype(), DType::kFloat32);
    }
    EXPECT_EQ(results[0], results[1]);
  }
}

}  // namespace
}  // namespace dtensor::nn
