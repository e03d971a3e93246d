#include "dtensor/ops/binary_cross_entropy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

// By probabilities, which a logit of 200 has none of that f32 could tell from 1.
TEST(BinaryCrossEntropy, IsThatOfTheProbabilities) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const DTensor x = leaf(floats({-1, 0.5, 2}, {3}), mesh, {Shard(0)});
    const DTensor t = distribute(floats({0, 1, 0.25}, {3}), mesh, {Shard(0)});
    DTensor loss = binary_cross_entropy_with_logits(x, t);
    double want = 0;
    const double xs[] = {-1, 0.5, 2};
    const double ts[] = {0, 1, 0.25};
    for (int i = 0; i < 3; ++i) {
      const double s = 1 / (1 + std::exp(-xs[i]));
      want -= ts[i] * std::log(s) + (1 - ts[i]) * std::log(1 - s);
    }
    EXPECT_NEAR(whole(loss)[0], want / 3, 1e-6);
    EXPECT_NEAR(whole(binary_cross_entropy_with_logits(x, t, LossReduction::kSum))[0], want, 3e-6);
    loss.backward();
    for (int i = 0; i < 3; ++i) {
      const double s = 1 / (1 + std::exp(-xs[i]));
      EXPECT_NEAR(whole(x.grad())[static_cast<size_t>(i)], (s - ts[i]) / 3, 1e-6);
    }
  });
  // Of what is nearly sure little is left, and all of it.
  for (const auto& [dtype, logit, rounding] :
       {std::tuple{DType::kFloat32, 20.0, 1e-6}, {DType::kBFloat16, 8.0, 0x1p-8}}) {
    for (const double sign : {1.0, -1.0}) {
      DTensor sure(Tensor::full({1}, sign * logit, dtype));
      sure.set_requires_grad(true);
      const DTensor label(Tensor::full({1}, sign > 0 ? 1.0 : 0.0, dtype));
      DTensor loss = binary_cross_entropy_with_logits(sure, label);
      EXPECT_EQ(loss.dtype(), dtype);
      const double want = std::log1p(std::exp(-logit));
      EXPECT_NEAR(loss.item(), want, rounding * want);
      loss.backward();
      const double slope = -sign / (1 + std::exp(logit));
      EXPECT_NEAR(sure.grad().item(), slope, rounding * std::fabs(slope));
    }
  }
  const DTensor far(floats({200, -200}, {2}));
  const DTensor none(floats({0, 1}, {2}));
  EXPECT_EQ(piece(binary_cross_entropy_with_logits(far, none, LossReduction::kNone)),
            (std::vector<float>{200, 200}));
  EXPECT_THROW(binary_cross_entropy_with_logits(far, DTensor(ids({1, 0}, {2}))), ArgumentError);
}

}  // namespace
}  // namespace dtensor
