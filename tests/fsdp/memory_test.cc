// The memory of a step is the formula of docs/fsdp.md, and stays it. By the allocator's peak.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/base/allocator.h"
#include "dtensor/fsdp/fully_shard.h"
#include "dtensor/optim/sgd.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tests/support/models.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::fsdp {
namespace {

using testing::random;
using testing::rows;
using testing::run_ranks;

constexpr int64_t kWidth = 256;  // a layer of 256 KiB; the activations of one row are 1 KiB

// Equal linear layers, one after the other.
class Layers : public nn::Module {
 public:
  explicit Layers(int count) {
    for (int i = 0; i < count; ++i) {
      layers.push_back(std::make_unique<nn::Linear>(kWidth, kWidth));
      add_child("layers." + std::to_string(i), *layers.back());
    }
  }
  std::string_view kind() const override { return "Layers"; }
  std::vector<std::unique_ptr<nn::Linear>> layers;

 protected:
  DTensor forward(const nn::Inputs& in) override {
    DTensor x = in[0];
    for (auto& layer : layers) x = (*layer)(x);
    return x;
  }
};

Allocator& allocator() { return *Context::current().slot<CurrentAllocator>().allocator; }

struct Peaks {
  std::vector<int64_t> steps;    // forward and backward
  std::vector<int64_t> forward;  // without gradients
};

// Peaks of what is live, with parameters and gradients.
Peaks peaks_of(comm::Comm& world, int count, int steps, const Options& options = {}) {
  const DeviceMesh mesh(world, {{"dp", world.size()}});
  Layers net(count);
  nn::init_normal(net, 1, 0.05);
  for (auto& layer : net.layers) fully_shard(*layer, mesh["dp"]);
  fully_shard(net, mesh["dp"], options);
  optim::SGD optimizer(net.parameters(), {.lr = 1e-3});
  const DTensor x = rows(random({world.size(), kWidth}, 1), mesh, {"dp"});
  Peaks peaks;
  for (int step = 0; step < steps; ++step) {
    allocator().reset_peak();
    {
      DTensor loss = mean(net(x));
      loss.backward();
    }
    peaks.steps.push_back(allocator().stats().peak_bytes);
    optimizer.step();
    optimizer.zero_grad();
  }
  const NoGrad no_grad;
  for (int step = 0; step < steps; ++step) {
    allocator().reset_peak();
    net(x);
    peaks.forward.push_back(allocator().stats().peak_bytes);
  }
  return peaks;
}

void expect_constant(const std::vector<int64_t>& peaks) {
  // The first step learns the order of the groups, the second makes the last of what is cached.
  for (size_t i = 2; i < peaks.size(); ++i) EXPECT_EQ(peaks[i], peaks[2]) << i;
}

void check_formula(int steps) {
  for (const int ranks : {2, 4}) {
    for (const int count : {6, 16}) {
      run_ranks(ranks, [&](comm::Comm& world) {
        const Peaks peaks = peaks_of(world, count, steps);
        const int64_t group = kWidth * kWidth * 4;
        const int64_t cut = count * group / ranks;
        // Forward: the shards, the group that computes and the one that is gathered ahead.
        const auto forward = static_cast<double>(cut + 2 * group);
        EXPECT_NEAR(static_cast<double>(peaks.forward.back()), forward, 0.05 * forward);
        // Backward: two groups gathered, the gradients of the one that computes, whole, and those
        // of the one before, whole on their way. The peak is at the last group but one, the last
        // that gathers ahead: all others but these two have their gradients, and the shards of
        // those that are on their way are there.
        const auto step = static_cast<double>(cut + (count - 2) * group / ranks + (2 + 2) * group);
        EXPECT_NEAR(static_cast<double>(peaks.steps.back()), step, 0.05 * step)
            << ranks << " ranks, " << count << " layers";
        expect_constant(peaks.steps);
        expect_constant(peaks.forward);
      });
    }
  }
}

TEST(Memory, IsTheFormulaOnTwoAndFourRanks) { check_formula(5); }

// 200 steps; by hand.
TEST(MemoryLong, IsTheFormulaFor200Steps) { check_formula(200); }

// pytorch#147179, torchtitan#735: what more layers add is their shards, nothing gathered.
TEST(Memory, OfGatheredGroupsDoesNotGrowWithTheNumberOfLayers) {
  run_ranks(2, [](comm::Comm& world) {
    const int64_t group = kWidth * kWidth * 4;
    const int64_t six = peaks_of(world, 6, 3).steps.back();
    const int64_t twelve = peaks_of(world, 12, 3).steps.back();
    // Six more layers are six more shards of parameters, and of gradients.
    EXPECT_NEAR(static_cast<double>(twelve - six), 6.0 * 2 * static_cast<double>(group) / 2,
                0.05 * static_cast<double>(group));
  });
}

}  // namespace
}  // namespace dtensor::fsdp
