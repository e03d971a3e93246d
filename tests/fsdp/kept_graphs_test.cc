// Graphs that outlive the forward or the step in which they were made.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/fsdp/fully_shard.h"
#include "dtensor/optim/sgd.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tests/fsdp/chain.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/support/values.h"

namespace dtensor::fsdp {
namespace {

using testing::Chain;
using testing::row_per_rank;
using testing::run_ranks;
using testing::Scale;
using testing::shard_all;
using testing::values;

constexpr Zero kAll[] = {Zero::kNothing, Zero::kState, Zero::kGradients, Zero::kParameters};

void shard(Chain& net, const MeshSlice& dims, Zero zero) {
  for (auto& part : net.parts) fully_shard(*part, dims, {.zero = zero});
  fully_shard(net, dims, {.zero = zero});
}

DTensor loss_of(Chain& net, const DeviceMesh& mesh, float scale) {
  return sum(net(row_per_rank(mesh, 4, [&](int r) { return scale * static_cast<float>(r + 1); })));
}

std::vector<float> grad(const Scale& s) { return values(s.weight.value().grad()); }

// A forward before the step whose graph is kept: an evaluation, or a loss that is only logged.
TEST(KeptGraphs, AnEarlierForwardDoesNotDisturbALaterBackward) {
  for (const Zero zero : kAll) {
    run_ranks(2, [&](comm::Comm& world) {
      const DeviceMesh mesh(world, {{"dp", 2}});
      Chain net(3, 4);
      shard(net, mesh["dp"], zero);
      optim::SGD optimizer(net.parameters(), {.lr = 1.0 / 64});
      std::vector<DTensor> kept;
      float w = 1;  // of every parameter
      for (int step = 0; step < 4; ++step) {
        if (step % 2 == 0) kept.push_back(loss_of(net, mesh, 16));
        DTensor loss = loss_of(net, mesh, 1);
        loss.backward();
        const float want = 3 * w * w * w;
        EXPECT_FLOAT_EQ(grad(*net.parts[1])[0], want);
        EXPECT_FLOAT_EQ(grad(net.own)[3], want);
        EXPECT_EQ(stats().live_groups, 0);
        optimizer.step();
        optimizer.zero_grad();
        w = values(net.own.weight.value())[0];
      }
      EXPECT_THROW(kept[0].backward(), Error);  // the parameters are not any more what they were
      optimizer.zero_grad();
      kept.clear();
      DTensor loss = loss_of(net, mesh, 1);
      loss.backward();
      EXPECT_FLOAT_EQ(grad(net.own)[0], 3 * w * w * w);
    });
  }
}

TEST(KeptGraphs, TwoForwardsRunBackwardInAnyOrder) {
  for (const Zero zero : kAll) {
    for (const std::string order : {"a", "b", "ab", "ba", "aab", "bca", "abc", "cba"}) {
      run_ranks(2, [&](comm::Comm& world) {
        const DeviceMesh mesh(world, {{"dp", 2}});
        Chain net(3, 4);
        shard(net, mesh["dp"], zero);
        std::vector<DTensor> losses{loss_of(net, mesh, 1), loss_of(net, mesh, 10),
                                    loss_of(net, mesh, 100)};
        float want = 0;
        for (const char c : order) {
          const auto i = static_cast<size_t>(c - 'a');
          losses[i].backward({.retain_graph = true});
          want += i == 0 ? 3 : i == 1 ? 30 : 300;
        }
        losses.clear();
        EXPECT_EQ(grad(net.own), std::vector<float>(4, want)) << order;
        for (auto& part : net.parts) EXPECT_EQ(grad(*part), std::vector<float>(4, want)) << order;
        EXPECT_EQ(stats().live_groups, 0);
        net.own.weight.value().set_grad({});
        DTensor loss = loss_of(net, mesh, 1);
        loss.backward();
        EXPECT_EQ(grad(net.own), std::vector<float>(4, 3));
      });
    }
  }
}

// What deferred backwards left in a group that the last one does not meet is reduced though an
// earlier graph has the group, too.
TEST(KeptGraphs, DeferredGradientsAreReducedBesideThem) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Chain net(2, 4);
    shard_all(net, mesh["dp"]);
    const DTensor kept = loss_of(net, mesh, 100);
    DTensor first = loss_of(net, mesh, 1);
    first.backward({.defer = true});
    net.first = 1;  // the first part is not used
    DTensor last = loss_of(net, mesh, 1);
    last.backward();
    const DTensor g = net.parts[0]->weight.value().grad();
    EXPECT_TRUE(g.layout() == net.parts[0]->weight.value().layout()) << to_string(g.layout());
    EXPECT_EQ(values(g), std::vector<float>(4, 3));
    EXPECT_EQ(grad(*net.parts[1]), std::vector<float>(4, 6));
  });
}

// Two inputs and a frozen parameter that the gradients of both need.
class Both : public nn::Module {
 public:
  Both() {
    frozen.weight.value().replace(DTensor(Tensor::full({4}, 3.0)));
    frozen.weight.value().set_requires_grad(false);
    add_child("frozen", frozen);
    add_child("trained", trained);
  }
  std::string_view kind() const override { return "Both"; }
  Scale frozen{4}, trained{4};

 protected:
  DTensor forward(const nn::Inputs& in) override {
    return trained(add(frozen(in[0]), frozen(frozen(in[1]))));
  }
};

TEST(KeptGraphs, AGroupFrozenInPartMayBeRunTwice) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Both net;
    fully_shard(net, mesh["dp"], {.reshard_after_forward = true});
    DTensor x = row_per_rank(mesh, 4, [](int r) { return r + 1; });
    DTensor y = row_per_rank(mesh, 4, [](int r) { return r + 1; });
    x.set_requires_grad(true);
    y.set_requires_grad(true);
    DTensor loss = sum(net(x, y));
    for (int run = 1; run <= 3; ++run) {
      loss.backward({.retain_graph = true});
      EXPECT_EQ(values(x.grad()), std::vector<float>(8, 3.0F * static_cast<float>(run)));
      EXPECT_EQ(values(y.grad()), std::vector<float>(8, 9.0F * static_cast<float>(run)));
      EXPECT_EQ(grad(net.trained), std::vector<float>(4, 36.0F * static_cast<float>(run)));
    }
  });
}

// A part of a model may be run by itself, also after a forward of the whole that threw.
TEST(KeptGraphs, AModuleThatRunsWithoutItsRootGathersNothingAhead) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Chain net(4, 4);
    shard_all(net, mesh["dp"]);
    bool throws = false;
    net.parts[1]->add_pre_hook([&](const nn::Inputs& in) {
      if (throws) throw ArgumentError("no");
      return in;
    });
    const DTensor x = row_per_rank(mesh, 4, [](int) { return 1; });
    const NoGrad no_grad;
    net(x);
    throws = true;
    EXPECT_THROW(net(x), ArgumentError);
    EXPECT_EQ(stats().live_groups, 0);
    (*net.parts[2])(x);
    EXPECT_EQ(stats().live_groups, 0);
  });
}

}  // namespace
}  // namespace dtensor::fsdp
