#include "dtensor/optim/ema.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "dtensor/base/allocator.h"
#include "dtensor/base/error.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::optim {
namespace {

std::vector<float> whole(const DTensor& t) {
  return full(t).to(DType::kFloat32).to_vector<float>();
}

TEST(Ema, FollowsItsFormulaOnAnyPlacement) {
  for (const auto placement : {Placement(Replicate()), Placement(Shard(0))}) {
    testing::run_ranks(3, [&](comm::Comm& world) {
      const DeviceMesh mesh(world, {{"x", 3}});
      const nn::Parameter p(distribute(Tensor::of<float>({1, 2, 3, 4}, {4}), mesh, {placement}));
      Ema ema({p}, 0.75);
      const DTensor next = distribute(Tensor::of<float>({5, 6, 7, 8}, {4}), mesh, {placement});
      p.value().replace(next);
      ema.update();  // 0.75 x + 0.25 (x + 4)
      EXPECT_EQ(whole(ema.state()[0].value), (std::vector<float>{2, 3, 4, 5}));
      EXPECT_EQ(whole(p.value()), (std::vector<float>{5, 6, 7, 8}));
      ema.with_averages([&] { EXPECT_EQ(whole(p.value()), (std::vector<float>{2, 3, 4, 5})); });
      EXPECT_EQ(whole(p.value()), (std::vector<float>{5, 6, 7, 8}));
      EXPECT_THROW(ema.with_averages([] { throw ArgumentError("evaluation"); }), ArgumentError);
      EXPECT_EQ(whole(p.value()), (std::vector<float>{5, 6, 7, 8}));
    });
  }
}

// In bf16 1 + 2^-9 is 1: an average kept in bf16 would never move.
TEST(Ema, OfBf16IsKeptInF32) {
  const nn::Parameter p(DTensor(Tensor::full({1}, 1.0, DType::kBFloat16)));
  Ema ema({p}, 0.998046875);  // 1 - 2^-9
  p.value().replace(DTensor(Tensor::full({1}, 2.0, DType::kBFloat16)));
  ema.update();
  EXPECT_EQ(whole(ema.state()[0].value), std::vector<float>{1.001953125F});
  ema.with_averages([&] {
    EXPECT_EQ(p.value().dtype(), DType::kBFloat16);
    EXPECT_EQ(whole(p.value()), std::vector<float>{1.0F});  // rounded
  });
}

TEST(Ema, AveragesAParameterThatIsListedTwiceOnce) {
  const nn::Parameter p(DTensor(Tensor::full({1}, 0.0)));
  Ema ema({p, p}, 0.5);
  EXPECT_EQ(ema.state().size(), 1U);
  p.value().replace(DTensor(Tensor::full({1}, 8.0)));
  ema.update();
  EXPECT_EQ(whole(ema.state()[0].value), std::vector<float>{4.0F});
  ema.with_averages([&] { EXPECT_EQ(whole(p.value()), std::vector<float>{4.0F}); });
  EXPECT_EQ(whole(p.value()), std::vector<float>{8.0F});
}

// Has memory for so many requests more.
class Small : public Allocator {
 public:
  void* allocate(int64_t bytes) override {
    if (left == 0) throw Error("out of memory, as asked for");
    --left;
    return inner_->allocate(bytes);
  }
  void deallocate(void* data, int64_t bytes) noexcept override { inner_->deallocate(data, bytes); }
  AllocatorStats stats() const override { return inner_->stats(); }
  void reset_peak() override { inner_->reset_peak(); }
  int left = 0;

 private:
  std::shared_ptr<Allocator> inner_ = make_heap_allocator();
};

TEST(Ema, PutsParametersBackWhereMemoryIsOut) {
  std::vector<nn::Parameter> all;
  for (int i = 0; i < 3; ++i) all.emplace_back(DTensor(Tensor::full({2}, 1.0)));
  Ema ema(all, 0.5);
  for (const nn::Parameter& p : all) p.value().replace(DTensor(Tensor::full({2}, 3.0)));
  ema.update();
  for (int left = 0; left < 3; ++left) {
    const auto memory = std::make_shared<Small>();
    memory->left = left;
    const ScopedSlot<CurrentAllocator> scope(CurrentAllocator{memory});
    bool ran = false;
    EXPECT_THROW(ema.with_averages([&] { ran = true; }), Error) << left;
    EXPECT_FALSE(ran);
    for (const nn::Parameter& p : all) {
      EXPECT_EQ(p.value().local_tensor().to_vector<float>(), (std::vector<float>{3, 3})) << left;
    }
  }
}

TEST(Ema, RefusesWhatDoesNotFit) {
  EXPECT_THROW(Ema({}, 1.5), ArgumentError);
  testing::run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"x", 2}});
    const nn::Parameter p(distribute(Tensor::full({4}, 1.0), mesh, {Replicate()}));
    Ema ema({p}, 0.5);
    p.place(p.value().layout().with(0, Shard(0)));
    EXPECT_THROW(ema.update(), PlacementError);
  });
}

}  // namespace
}  // namespace dtensor::optim
