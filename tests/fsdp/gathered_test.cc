// After an exception: nothing gathered stays behind, no gradient, and the next step is right.

#include "dtensor/fsdp/gathered.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "dtensor/base/allocator.h"
#include "dtensor/base/error.h"
#include "dtensor/fsdp/fully_shard.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tests/fsdp/chain.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/support/values.h"

namespace dtensor::fsdp {
namespace {

using testing::Chain;
using testing::row_per_rank;
using testing::run_ranks;
using testing::shard_all;
using testing::values;

// Is out of memory at one request.
class Failing : public Allocator {
 public:
  void* allocate(int64_t bytes) override {
    if (left > 0 && --left == 0) throw Error("out of memory, as asked for");
    return inner_->allocate(bytes);
  }
  void deallocate(void* data, int64_t bytes) noexcept override { inner_->deallocate(data, bytes); }
  AllocatorStats stats() const override { return inner_->stats(); }
  void reset_peak() override { inner_->reset_peak(); }
  int left = 0;  // requests until that one; 0: never

 private:
  std::shared_ptr<Allocator> inner_ = make_heap_allocator();
};

struct Case {
  Zero zero = Zero::kParameters;
  bool deferred = false;
};

// Memory is out at the first request of a step, at the second, and so on, on all ranks alike.
TEST(Gathered, AfterARequestForMemoryThatFailedTheNextStepIsRight) {
  for (const Case& c : {Case{Zero::kParameters, false}, Case{Zero::kState, false},
                        Case{Zero::kGradients, false}, Case{Zero::kParameters, true}}) {
    run_ranks(2, [&](comm::Comm& world) {
      const DeviceMesh mesh(world, {{"dp", 2}});
      const auto memory = std::make_shared<Failing>();
      const ScopedSlot<CurrentAllocator> scope(CurrentAllocator{memory});
      Chain net(3, 6);
      shard_all(net, mesh["dp"], {.zero = c.zero});
      const auto step = [&](double scale) {
        for (int k = 0; k < 2; ++k) {
          DTensor loss = sum(net(row_per_rank(mesh, 6, [&](int r) { return scale * (r + 1); })));
          loss.backward({.defer = c.deferred && k == 0});
        }
      };
      step(1);
      int failed = 0;
      for (int request = 1;; ++request) {
        for (const auto& p : net.parameters()) p.value().set_grad({});
        memory->left = request;
        bool threw = false;
        try {
          step(100);
        } catch (const Error&) {
          threw = true;
        }
        if (memory->left > 0) break;
        failed += threw ? 1 : 0;
        memory->left = 0;
        EXPECT_EQ(stats().live_groups, 0) << request;
        EXPECT_EQ(stats().live_reductions, 0) << request;
        for (const auto& p : net.parameters()) p.value().set_grad({});
        step(1);
        for (const auto& p : net.parameters()) {
          ASSERT_EQ(values(p.value().grad()), std::vector<float>(6, 6.0F)) << request;
        }
      }
      EXPECT_GT(failed, 20);
    });
  }
}

TEST(Gathered, AfterAHookThatThrewTheNextStepIsRight) {
  run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Chain net(3, 6);
    shard_all(net, mesh["dp"]);
    bool throws = false;
    add_grad_hook(net.parts[1]->weight.value(), [&](const DTensor& g) {
      if (throws) throw ArgumentError("no");
      return g;
    });
    for (int step = 0; step < 4; ++step) {
      throws = step % 2 == 1;
      DTensor loss =
          sum(net(row_per_rank(mesh, 6, [&](int r) { return (throws ? 100 : 1) * (r + 1); })));
      if (throws) {
        EXPECT_THROW(loss.backward(), ArgumentError);
      } else {
        loss.backward();
        for (const auto& p : net.parameters()) {
          EXPECT_EQ(values(p.value().grad()), std::vector<float>(6, 3.0F));
        }
      }
      EXPECT_EQ(stats().live_groups, 0);
      EXPECT_EQ(stats().live_reductions, 0);
      for (const auto& p : net.parameters()) p.value().set_grad({});
    }
  });
}

}  // namespace
}  // namespace dtensor::fsdp
