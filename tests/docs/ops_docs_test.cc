// The C++ of docs/ops.md.

#include <gtest/gtest.h>

#include "dtensor/ops/ops.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

// clang-format off
void matmul_over_a_cut_inner_dim(const DeviceMesh& mesh) {
  const DTensor x = distribute(Tensor::full({4, 6}, 1.0), mesh, {Shard(1)});
  const DTensor w = distribute(Tensor::full({6, 3}, 1.0), mesh, {Shard(0)});
  const DTensor y = matmul(x, w);                           // each rank's product is a part
  const DTensor z = redistribute(y, {Replicate()});         // the one all-reduce, where you write it
  internal_check(y.spec().placement(0) == Partial(), "y is P(sum)");
  internal_check(*z.local_tensor().data<float>() == 6.0F, "z is the sum");
}
// clang-format on

DTensor relu_of_a_partial(const DTensor& partial) {
  const PolicyScope scope(RedistributePolicy::kAuto);
  return relu(partial);  // one all-reduce first
}

TEST(OpsPage, RunsItsExamples) {
  testing::run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    matmul_over_a_cut_inner_dim(mesh);
    const DTensor x = distribute(Tensor::full({4}, -3.0), mesh, {Partial()});
    EXPECT_EQ(full(relu_of_a_partial(x)).to_vector<float>(), std::vector<float>(4, 0.0F));
  });
}

}  // namespace
}  // namespace dtensor
