#include "dtensor/ops/dropout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dtensor/base/philox.h"
#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::Each;

constexpr Generator kStart{.seed = 17, .next_stream = 5};

struct Draws {
  std::vector<float> first;
  std::vector<float> second;
  std::vector<float> gradient;  // of the sum of the first
};

Draws draw(const DTensor& ones) {
  Context::current().slot<Generator>() = kStart;
  Draws d;
  DTensor x = ones;
  const DTensor y = dropout(x, 0.5);
  d.first = whole(y);
  if (x.requires_grad()) {
    sum(y).backward();
    d.gradient = whole(x.grad());
  }
  d.second = whole(dropout(ones.detach(), 0.5));
  EXPECT_EQ(Context::current().slot<Generator>(), (Generator{17, 7}));
  return d;
}

Draws on_one_rank() {
  DTensor ones(Tensor::full({7, 5}, 1.0));
  ones.set_requires_grad(true);
  return draw(ones);
}

// pytorch#168058, pytorch#146190
TEST(Dropout, HasTheSameBitsOnEveryMesh) {
  const Draws want = on_one_rank();
  for (const float v : want.first) EXPECT_TRUE(v == 0.0F || v == 2.0F) << v;
  EXPECT_NE(want.first, want.second);
  EXPECT_EQ(want.gradient, want.first) << "the gradient of ones has the mask's values";

  const auto check = [&want](const std::vector<MeshDim>& dims, const std::vector<Placement>& p) {
    int ranks = 1;
    for (const MeshDim& d : dims) ranks *= d.size;
    run_ranks(ranks, [&](comm::Comm& comm) {
      const DeviceMesh mesh(comm, dims);
      const Tensor ones = Tensor::full({7, 5}, 1.0);
      DTensor x = distribute(ones, mesh, std::span<const Placement>(p));
      if (!x.spec().has_partial()) x.set_requires_grad(true);
      const Draws got = draw(x);
      EXPECT_EQ(got.first, want.first);
      EXPECT_EQ(got.second, want.second);
      if (x.requires_grad()) {
        EXPECT_EQ(got.gradient, want.gradient);
      }
    });
  };
  check({{"a", 3}}, {Replicate()});
  check({{"a", 2}}, {Shard(0)});
  check({{"a", 3}}, {Shard(0)});
  check({{"a", 8}}, {Shard(0)});
  check({{"a", 3}}, {Shard(1)});
  check({{"a", 2}, {"b", 2}}, {Shard(0), Shard(1)});
  check({{"a", 2}, {"b", 2}}, {Shard(0), Shard(0)});
  check({{"a", 2}}, {Partial()});
}

TEST(Dropout, PassesAPartialAndIsRightAtItsEnds) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    Context::current().slot<Generator>() = kStart;
    const DTensor x = partial({{1, 2}, {3, 4}}, {2}, mesh);
    const DTensor y = dropout(x, 0.0);
    EXPECT_EQ(y.spec().placement(0), Partial());
    EXPECT_EQ(moved_bytes(), 0);
    EXPECT_THAT(whole(y), ::testing::ElementsAre(4, 6));
    EXPECT_THAT(whole(dropout(x, 1.0)), Each(0.0F));
    EXPECT_THROW(dropout(x, 1.5), ArgumentError);
    EXPECT_THROW(dropout(x, -0.1), ArgumentError);
  });
}

}  // namespace
}  // namespace dtensor
