#include "dtensor/optim/clip_grad_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/ledger.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::optim {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A parameter of zeros whose gradient is `grad`.
nn::Parameter with_grad(const DTensor& grad) {
  const Tensor zero = grad.has_local() ? Tensor::zeros(grad.local_tensor().shape()) : Tensor();
  nn::Parameter p(!grad.mesh().defined() ? DTensor(zero)
                  : zero.defined()       ? DTensor(zero, grad.layout(), grad.mesh())
                                         : DTensor(grad.dtype(), grad.layout(), grad.mesh()));
  p.value().set_grad(grad);
  return p;
}

// [3,4] cut over four ranks (1,0,1,0) and [12] on the mesh of ranks 0 and 1 only.
struct TwoMeshes {
  explicit TwoMeshes(comm::Comm& world)
      : four(world, {{"x", 4}}),
        two(world, {{"y", 2}}, {0, 1}),
        a(with_grad(distribute(Tensor::of<float>({3, 4}, {2}), four, {Shard(0)}))),
        b(with_grad(distribute(Tensor::of<float>({12}, {1}), two, {Replicate()}))) {}
  DeviceMesh four;
  DeviceMesh two;
  nn::Parameter a;
  nn::Parameter b;
};

std::vector<float> local(const nn::Parameter& p) {
  const DTensor grad = p.value().grad();
  return grad.has_local() ? grad.local_tensor().to_vector<float>() : std::vector<float>{};
}

// pytorch#180346, pytorch#170862
TEST(ClipGradNorm, CountsEachElementOnceOverSeveralMeshes) {
  testing::run_ranks(4, [](comm::Comm& world) {
    TwoMeshes t(world);
    const double norm = clip_grad_norm({t.a, t.b}, 6.5, {.mesh = t.four});
    EXPECT_DOUBLE_EQ(norm, 13.0);
    // 6.5 / (13 + 1e-6) rounded to float32 is 0.49999997.
    const float factor = 0.49999997F;
    const int r = world.rank();
    std::vector<float> want;
    if (r == 0) want = {3 * factor};
    if (r == 2) want = {4 * factor};
    EXPECT_EQ(local(t.a), want);
    EXPECT_EQ(local(t.b), r < 2 ? std::vector<float>{12 * factor} : std::vector<float>{});
  });
}

TEST(ClipGradNorm, ChangesNoBitBelowTheLimit) {
  testing::run_ranks(4, [](comm::Comm& world) {
    TwoMeshes t(world);
    EXPECT_DOUBLE_EQ(clip_grad_norm({t.a, t.b}, 20.0, {.mesh = t.four}), 13.0);
    const std::vector<std::vector<float>> want{{3}, {}, {4}, {}};
    EXPECT_EQ(local(t.a), want[static_cast<size_t>(world.rank())]);
  });
}

TEST(ClipGradNorm, HasTheOneAndTheInfinityNorm) {
  testing::run_ranks(4, [](comm::Comm& world) {
    TwoMeshes t(world);
    EXPECT_DOUBLE_EQ(clip_grad_norm({t.a, t.b}, 100, {.mesh = t.four, .norm_type = 1.0}), 19.0);
    EXPECT_DOUBLE_EQ(clip_grad_norm({t.a, t.b}, 100, {.mesh = t.four, .norm_type = kInfinity}),
                     12.0);
    EXPECT_THROW(clip_grad_norm({t.a}, 1, {.norm_type = 3.0}), ArgumentError);
  });
}

TEST(ClipGradNorm, RefusesAMeshThatDoesNotHoldAllGradients) {
  testing::run_ranks(4, [](comm::Comm& world) {
    TwoMeshes t(world);
    EXPECT_THROW(clip_grad_norm({t.b, t.a}, 1.0), PlacementError);  // of the first: ranks 0, 1
    const nn::Parameter none = with_grad(DTensor(Tensor::zeros({1})));
    EXPECT_THROW(clip_grad_norm({t.a, none}, 1.0), PlacementError);
  });
}

TEST(ClipGradNorm, MixedPlacementsTakeOneAllReduceOfOneNumber) {
  testing::run_ranks(4, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}, {"tp", 2}});
    const Tensor x = Tensor::of<float>({1, 2, 3, 4, 5, 6}, {2, 3});  // squares: 91
    std::vector<nn::Parameter> parameters;
    for (const auto& placements : std::vector<std::vector<Placement>>{{Replicate(), Replicate()},
                                                                      {Shard(0), Replicate()},
                                                                      {Replicate(), Shard(1)},
                                                                      {Shard(1), Shard(0)},
                                                                      {Shard(0), Shard(0)}}) {
      parameters.push_back(with_grad(distribute(x, mesh, placements)));
    }
    auto& ledger = Context::current().slot<Ledger>();
    ledger.clear();
    const double norm = clip_grad_norm(parameters, 1.0);
    EXPECT_NEAR(norm, std::sqrt(5 * 91.0), 1e-12);
    ASSERT_EQ(ledger.entries().size(), 1U);
    EXPECT_EQ(ledger.entries()[0].kind, StepKind::kAllReduce);
    EXPECT_EQ(ledger.entries()[0].op, "clip_grad_norm");
    EXPECT_EQ(ledger.entries()[0].from.shape(), Shape{});
    double sum = 0.0;
    for (const auto& p : parameters) {
      for (const float g : full(p.value().grad()).to_vector<float>()) sum += double{g} * g;
    }
    EXPECT_NEAR(std::sqrt(sum), 1.0, 1e-6);
  });
}

TEST(ClipGradNorm, SendsNothingOnNoMesh) {
  const nn::Parameter p = with_grad(DTensor(Tensor::of<float>({3, 4}, {2})));
  const nn::Parameter without(DTensor(Tensor::zeros({2})));
  EXPECT_DOUBLE_EQ(clip_grad_norm({without, p}, 10.0), 5.0);
  EXPECT_EQ(local(p), (std::vector<float>{3, 4}));
  EXPECT_DOUBLE_EQ(clip_grad_norm({without}, 10.0), 0.0);
}

TEST(ClipGradNorm, RefusesAPartialGradientAndPassesOnANaN) {
  testing::run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    const nn::Parameter p = with_grad(distribute(Tensor::zeros({2}), mesh, {Partial()}));
    EXPECT_THROW(clip_grad_norm({p}, 1.0), PlacementError);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const double type : {1.0, 2.0, kInfinity}) {
      const nn::Parameter q =
          with_grad(distribute(Tensor::of<float>({1, nan}, {2}), mesh, {Shard(0)}));
      EXPECT_TRUE(std::isnan(clip_grad_norm({q}, 1.0, {.norm_type = type}))) << type;
      EXPECT_TRUE(std::isnan(local(q)[0])) << type;  // on the rank of the 1 as well
    }
  });
}

// A tied parameter that a list has twice.
TEST(ClipGradNorm, CountsAndScalesAParameterOnce) {
  const nn::Parameter a = with_grad(DTensor(Tensor::of<float>({3}, {1})));
  const nn::Parameter b = with_grad(DTensor(Tensor::of<float>({4}, {1})));
  EXPECT_DOUBLE_EQ(grad_norm({a, b, a, a, b}), 5.0);
  EXPECT_DOUBLE_EQ(grad_norm({a, b, a}, {.norm_type = 1.0}), 7.0);
  clip_grad_norm({a, b, a}, 2.5);
  EXPECT_NEAR(local(a)[0], 1.5F, 1e-6);
  scale_gradients({a, a}, 2.0);
  EXPECT_NEAR(local(a)[0], 3.0F, 1e-6);
}

// What lies on no mesh has a gradient on each rank, which nobody can tell to be copies or parts.
TEST(ClipGradNorm, RefusesAParameterOnNoMeshBesideOthersOnOne) {
  testing::run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    const nn::Parameter on =
        with_grad(distribute(Tensor::of<float>({3, 0}, {2}), mesh, {Shard(0)}));
    const nn::Parameter off = with_grad(DTensor(Tensor::of<float>({4}, {1})));
    EXPECT_THROW(grad_norm({on, off}), PlacementError);
    EXPECT_THROW(grad_norm({off, on}), PlacementError);
    EXPECT_THROW(clip_grad_norm({off, on}, 1.0), PlacementError);
    EXPECT_EQ(local(off), std::vector<float>{4});
  });
}

// A deferred backward keeps the sum elsewhere, too: what is written here would be lost.
TEST(ClipGradNorm, ScalesNoPartialGradient) {
  testing::run_ranks(2, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    const nn::Parameter whole = with_grad(distribute(Tensor::full({2}, 1.0), mesh, {Replicate()}));
    const nn::Parameter p = with_grad(distribute(Tensor::full({2}, 1.0), mesh, {Partial()}));
    EXPECT_THROW(scale_gradients({whole, p}, 2.0), PlacementError);
    EXPECT_EQ(local(whole), (std::vector<float>{1, 1}));
  });
}

// The gradients of a sum's two terms may be one tensor.
TEST(ClipGradNorm, ScalesSharedMemoryOnce) {
  const DTensor g(Tensor::of<float>({3, 4}, {2}));
  const nn::Parameter a = with_grad(g);
  const nn::Parameter b = with_grad(DTensor(g.local_tensor()));
  const double norm = std::sqrt(50.0);
  clip_grad_norm({a, b}, norm / 2);
  EXPECT_NEAR(local(a)[0], 1.5F, 1e-6);
  EXPECT_NEAR(local(b)[0], 1.5F, 1e-6);
}

}  // namespace
}  // namespace dtensor::optim
