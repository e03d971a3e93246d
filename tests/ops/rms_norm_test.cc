#include "dtensor/ops/rms_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;

TEST(RmsNorm, OfACutWidthOrAPartialIsRefused) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const DTensor w = distribute(counted({4}), mesh, {Replicate()});
    const DTensor cut = distribute(counted({3, 4}), mesh, {Shard(1)});
    EXPECT_THAT(placement_error([&] { rms_norm(cut, w, 1e-5); }),
                HasSubstr("{.sharded_dims = true}"));
    const DTensor part = partial({{1, 2}, {3, 4}}, {1, 2}, mesh);
    const DTensor w2 = distribute(counted({2}), mesh, {Replicate()});
    EXPECT_THAT(placement_error([&] { rms_norm(part, w2, 1e-5); }),
                HasSubstr("not linear in its Partial input"));
  });
}

TEST(RmsNorm, GivesThePartialGradientOfTheWeightToOneReduction) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const DTensor x = distribute(floats({3, 4, 6, 8, 5, 12}, {3, 2}), mesh, {Shard(0)});
    const DTensor w = leaf(floats({1, 1}, {2}), mesh, {Replicate()});
    sum(rms_norm(x, w, 0.0)).backward();
    // Each row is x / sqrt(mean(x^2)): (3,4) and (6,8) alike by sqrt(12.5), (5,12) by sqrt(84.5).
    const std::vector<float> g = piece(w.grad());
    EXPECT_NEAR(g[0], 2 * 3 / std::sqrt(12.5) + 5 / std::sqrt(84.5), 1e-6);
    EXPECT_NEAR(g[1], 2 * 4 / std::sqrt(12.5) + 12 / std::sqrt(84.5), 1e-6);
    const auto& entries = Context::current().slot<Ledger>().entries();
    ASSERT_EQ(entries.size(), 1U);
    EXPECT_EQ(entries[0].kind, StepKind::kAllReduce);
    EXPECT_EQ(entries[0].of, "leaf");
  });
}

TEST(RmsNorm, TakesAnF32WeightBesideBf16) {
  DTensor w(Tensor::full({2}, 1.0));
  w.set_requires_grad(true);
  const DTensor x(Tensor::full({3, 2}, 2.0, DType::kBFloat16));
  const DTensor y = rms_norm(x, w, 0.0);
  EXPECT_EQ(y.dtype(), DType::kBFloat16);
  sum(cast(y, DType::kFloat32)).backward();
  EXPECT_EQ(piece(w.grad()), (std::vector<float>{3, 3}));
}

// Every rank runs backward, also one that has no part in it.
TEST(RmsNorm, GivesGradientsOfTwoDtypesOutsideTheMesh) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}}, {2, 0});
    const DTensor w = leaf(Tensor::full({2}, 1.0), mesh, {Replicate()});
    const DTensor x = leaf(Tensor::full({3, 2}, 2.0, DType::kBFloat16), mesh, {Shard(0)});
    sum(cast(rms_norm(x, w, 0.0), DType::kFloat32)).backward();
    EXPECT_EQ(x.grad().dtype(), DType::kBFloat16);
    EXPECT_EQ(w.grad().dtype(), DType::kFloat32);
    EXPECT_EQ(w.grad().has_local(), comm.rank() != 1);
    if (comm.rank() == 1) return;
    EXPECT_EQ(piece(w.grad()), (std::vector<float>{3, 3}));
  });
}

}  // namespace
}  // namespace dtensor
