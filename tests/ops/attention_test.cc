#include "dtensor/ops/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

// q = k = 0 and v = 1..5: row i is the mean of what it sees.
struct Case {
  DTensor q;
  DTensor k;
  DTensor v;
};
Case zeros_and_counts(const DeviceMesh& mesh, Placement of_q, Placement of_kv) {
  const Tensor zero = Tensor::zeros({1, 5, 1, 1});
  return {distribute(Tensor::zeros({1, 5, 1, 1, 1}), mesh, {of_q}), distribute(zero, mesh, {of_kv}),
          leaf(floats({1, 2, 3, 4, 5}, {1, 5, 1, 1}), mesh, {of_kv})};
}

// pytorch#141429, pytorch#185493: the second rank's mask starts at its own first query.
TEST(Attention, OfCutQueriesMasksByGlobalPositions) {
  for (const int size : {2, 3}) {
    run_ranks(size, [](comm::Comm& comm) {
      const DeviceMesh mesh(comm, {{"cp", comm.size()}});
      const Case c = zeros_and_counts(mesh, Shard(1), Replicate());
      const DTensor y = attention(c.q, c.k, c.v);
      EXPECT_EQ(y.spec().placement(0), Shard(1));
      EXPECT_THAT(whole(y), Pointwise(FloatNear(1e-6F), std::vector<float>{1, 1.5F, 2, 2.5F, 3}));
      sum(y).backward();
      EXPECT_THAT(piece(c.v.grad()),
                  Pointwise(FloatNear(1e-6F),
                            std::vector<float>{2.2833333F, 1.2833333F, 0.7833333F, 0.45F, 0.2F}));
      const DTensor all = attention(c.q, c.k, c.v, {.causal = false});
      EXPECT_THAT(whole(all), Pointwise(FloatNear(1e-6F), std::vector<float>{3, 3, 3, 3, 3}));
    });
  }
}

TEST(Attention, OverKeyShardsIsRefused) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"cp", 2}});
    const Case c = zeros_and_counts(mesh, Replicate(), Shard(1));
    EXPECT_THAT(placement_error([&] { attention(c.q, c.k, c.v); }),
                AllOf(HasSubstr("attention: q f32[1,5,1,1,1] is R, k f32[1,5,1,1] is S(1)"),
                      HasSubstr("'s' may not be cut"), HasSubstr("redistribute(k, ")));
  });
}

TEST(Attention, CountsKeysThatStandBeforeTheFirstQuery) {
  const DTensor q(Tensor::zeros({1, 1, 1, 1, 1}));
  const DTensor k(Tensor::zeros({1, 5, 1, 1}));
  const DTensor v(floats({1, 2, 3, 4, 5}, {1, 5, 1, 1}));
  EXPECT_THAT(piece(attention(q, k, v, {.query_offset = 3})),
              Pointwise(FloatNear(1e-6F), std::vector<float>{2.5F}));
}

}  // namespace
}  // namespace dtensor
