#include "dtensor/tensor/factory.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/base/philox.h"
#include "dtensor/tensor/local.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/tensor/pieces.h"

namespace dtensor {
namespace {

using testing::run_ranks;
using Floats = std::vector<float>;

Floats values(const DTensor& t) { return t.local_tensor().to_vector<float>(); }

TEST(Factory, DistributeCopiesThePieceOfEveryRank) {
  const Tensor whole = Tensor::arange(35).view({7, 5}).transpose(0, 1);
  run_ranks(4, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"a", 2}, {"b", 2}});
    for (const Placement p : {Replicate(), Shard(0), Shard(1)}) {
      for (const Placement q : {Replicate(), Shard(0), Shard(1)}) {
        const DTensor t = distribute(whole, mesh, {p, q});
        EXPECT_EQ(values(t),
                  testing::piece_of(t.layout(), *mesh.coordinate(), whole.to_vector<float>())
                      .to_vector<float>());
        EXPECT_NE(t.local_tensor().storage(), whole.storage());
      }
    }
    EXPECT_THROW(
        static_cast<void>(distribute(whole, mesh, Layout::replicated(mesh.layout(), {7, 5}))),
        ArgumentError);
    EXPECT_EQ(comm.counters().calls, 0);
  });
}

TEST(Factory, PartialHoldsTheValueOnce) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"a", 2}, {"b", 2}});
    const bool first = comm.rank() == 0;
    const Floats minus_zero{-0.0F};
    const DTensor sum = full({1}, 5, mesh, {Partial(), Partial()});
    EXPECT_EQ(values(sum), first ? Floats{5} : minus_zero);
    if (!first) {
      EXPECT_TRUE(std::signbit(values(sum)[0]));
    }
    const DTensor prod = full({1}, 5, mesh, {Partial(PartialOp::kProd)});
    EXPECT_EQ(values(prod), comm.rank() < 2 ? Floats{5} : Floats{1});
    EXPECT_EQ(values(full({1}, 5, mesh, {Partial(PartialOp::kMax)})), Floats{5});
    EXPECT_EQ(values(distribute(Tensor::full({1}, 5), mesh, {Replicate(), Partial()})),
              comm.rank() % 2 == 0 ? Floats{5} : minus_zero);
  });
}

// pytorch#168058, pytorch#146190: the same bits on every mesh and by every placement.
TEST(Factory, RandomNumbersDependOnTheGlobalIndexAlone) {
  const FactoryOptions options{.seed = 11, .stream = "layers.0.weight"};
  const Shape shape{7, 5};
  Floats want;
  for (uint64_t i = 0; i < 35; ++i) {
    want.push_back(philox_normal(11, stream_of("layers.0.weight"), i));
  }
  EXPECT_EQ(values(randn(shape, {}, {}, options)), want);
  const auto check = [&](const DTensor& t) {
    EXPECT_EQ(full(t).to_vector<float>(), want) << to_string(t.layout());
  };
  for (const int n : {1, 2, 3, 8}) {
    run_ranks(n, [&](comm::Comm& comm) {
      const DeviceMesh mesh(comm, {{"x", n}});
      for (const Placement p : {Replicate(), Shard(0), Shard(1), Partial()}) {
        check(randn(shape, mesh, {p}, options));
      }
    });
  }
  run_ranks(4, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"a", 2}, {"b", 2}});
    check(randn(shape, mesh, {Shard(0), Shard(1)}, options));
    check(randn(shape, mesh, {Shard(0), Shard(0)}, options));
    DTensor t = zeros(shape, mesh, {Shard(1), Shard(0)});
    const uint64_t version = t.local_tensor().storage()->version();
    fill_normal(t, 1.0, 11, "layers.0.weight");
    check(t);
    EXPECT_GT(t.local_tensor().storage()->version(), version);
  });
  Floats other = values(randn(shape, {}, {}, {.seed = 11, .stream = "layers.1.weight"}));
  EXPECT_NE(other, want);
  const DTensor u = uniform({1000}, {}, {}, options);
  for (const float x : values(u)) EXPECT_TRUE(x >= 0 && x < 1);
}

TEST(Factory, RandomNumbersInHalfPrecisionAreTheRoundedOnes) {
  const DTensor wide = randn({20}, {}, {}, {.seed = 1, .stream = "w"});
  const DTensor narrow = randn({20}, {}, {}, {.dtype = DType::kBFloat16, .seed = 1, .stream = "w"});
  EXPECT_EQ(narrow.local_tensor().to(DType::kFloat32).to_vector<float>(),
            wide.local_tensor().to(DType::kBFloat16).to(DType::kFloat32).to_vector<float>());
  DTensor scaled = zeros({20});
  fill_normal(scaled, 0.5, 1, "w");
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(values(scaled)[i], 0.5F * values(wide)[i]);
}

TEST(Factory, LikePutsATensorBesideAnother) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const DTensor t = zeros({4}, mesh, {Shard(0)});
    const DTensor positions = arange(3, t, {.dtype = DType::kInt64});
    EXPECT_EQ(positions.mesh(), mesh);
    EXPECT_TRUE(positions.spec().is_replicated());
    EXPECT_EQ(positions.local_tensor().to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2}));
    EXPECT_FALSE(arange(3, zeros({4})).mesh().defined());
    EXPECT_EQ(constant(Tensor::arange(2), t).shape(), Shape{2});
  });
}

TEST(Factory, OnNoMeshAndOutsideOne) {
  EXPECT_EQ(values(zeros({2})), (Floats{0, 0}));
  EXPECT_EQ(values(full({2}, 3)), (Floats{3, 3}));
  EXPECT_THROW(zeros({-1}), ArgumentError);
  const auto of = [](double value, DType dtype) {
    return full({1}, value, {}, {}, {.dtype = dtype}).local_tensor().to(DType::kFloat64);
  };
  EXPECT_EQ(of(255.9, DType::kUInt8).to_vector<double>()[0], 255);
  EXPECT_EQ(of(-0x1p63, DType::kInt64).to_vector<double>()[0], -0x1p63);
  EXPECT_THROW(of(256, DType::kUInt8), ArgumentError);
  EXPECT_THROW(of(-1, DType::kUInt8), ArgumentError);
  EXPECT_THROW(of(0x1p63, DType::kInt64), ArgumentError);
  EXPECT_THROW(of(std::numeric_limits<double>::quiet_NaN(), DType::kInt32), ArgumentError);
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}}, {2, 0});
    const DTensor t = full({5}, 3, mesh, {Shard(0)}, {.dtype = DType::kFloat64});
    EXPECT_EQ(t.has_local(), comm.rank() != 1);
    EXPECT_EQ(t.dtype(), DType::kFloat64);
    EXPECT_EQ(t.shape(), Shape{5});
    // pytorch#169361
    EXPECT_THROW(zeros({}, mesh, {Shard(0)}), PlacementError);
    EXPECT_THROW(zeros({4, 6}, mesh, {Shard(2)}), PlacementError);
  });
}

// Of 2^24 numbers the last 2^15 round to 1 in bf16, and the last 2^12 in f16.
TEST(Factory, UniformIsBelowOneInHalfPrecision) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const FactoryOptions options{.dtype = dtype, .seed = 1, .stream = "u"};
    const Floats got =
        values(DTensor(uniform({40000}, {}, {}, options).local_tensor().to(DType::kFloat32)));
    const Floats wide = values(uniform({40000}, {}, {}, {.seed = 1, .stream = "u"}));
    const Floats rounded = values(DTensor(DTensor(Tensor::of(std::span<const float>(wide), {40000}))
                                              .local_tensor()
                                              .to(dtype)
                                              .to(DType::kFloat32)));
    const float last = dtype == DType::kBFloat16 ? 1 - 0x1p-8F : 1 - 0x1p-11F;
    int at_one = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      at_one += rounded[i] == 1 ? 1 : 0;
      EXPECT_EQ(got[i], rounded[i] == 1 ? last : rounded[i]);
    }
    EXPECT_GT(at_one, 0);  // the test sees some
  }
}

TEST(Factory, RandomNumbersAreFloatingOnEveryRank) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}}, {0, 1});
    for (const DType dtype : {DType::kInt32, DType::kBool}) {
      EXPECT_THROW(randn({4}, mesh, {Partial()}, {.dtype = dtype}), ArgumentError);
      EXPECT_THROW(uniform({4}, mesh, {Shard(0)}, {.dtype = dtype}), ArgumentError);
      const DTensor t = zeros({4}, mesh, {Shard(0)}, {.dtype = dtype});
      EXPECT_THROW(fill_normal(t, 1.0, 1, "w"), ArgumentError);
    }
  });
}

}  // namespace
}  // namespace dtensor
