#include "dtensor/optim/ema.h"

#include <gtest/gtest.h>

#include <vector>

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
