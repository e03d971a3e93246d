// The code of docs/tensor.md.

#include <gtest/gtest.h>

#include "dtensor/base/context.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/ledger.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

void makes_a_tensor_on_a_mesh(comm::Comm& world) {
  const DeviceMesh mesh(world, {{"dp", 2}, {"tp", 2}});
  const DTensor w = distribute(Tensor::arange(20).view({5, 4}), mesh, {Replicate(), Shard(0)});
  EXPECT_EQ(w.shape(), (Shape{5, 4}));                                      // global
  EXPECT_EQ(w.local_tensor().size(0), mesh.coordinate("tp") == 0 ? 3 : 2);  // this rank's
  const DTensor r = randn({5, 4}, mesh, {Shard(0), Shard(1)}, {.seed = 7, .stream = "w"});
  EXPECT_EQ(full(r).to_vector<float>(),  // the same bits
            randn({5, 4}, {}, {}, {.seed = 7, .stream = "w"}).local_tensor().to_vector<float>());
}

void moves_between_placements(comm::Comm& world) {
  const DeviceMesh mesh(world, {{"dp", 2}, {"tp", 2}});
  const DTensor rows = distribute(Tensor::arange(20).view({5, 4}), mesh, {Shard(0), Shard(1)});
  const DTensor all = redistribute(rows, {Replicate(), Replicate()});  // one all-gather
  const DTensor half = redistribute(rows, mesh["tp"], {Replicate()});  // dp stays S(0)
  EXPECT_EQ(to_string(half.layout().placement(0)), "S(0)");
  EXPECT_EQ(redistribute(half, {Shard(0)}).impl(), half.impl());  // nothing to do
  EXPECT_EQ(Context::current().slot<Ledger>().entries().size(), 2U);
  EXPECT_TRUE(equal(all, half));  // the same value
}

void reads_the_ledger(comm::Comm& world) {
  const DeviceMesh mesh(world, {{"x", 4}});
  const DTensor t = distribute(Tensor::arange(5), mesh, {Shard(0)});
  Ledger& ledger = Context::current().slot<Ledger>();
  ledger.clear();
  static_cast<void>(redistribute(t, {Replicate()}));
  const LedgerEntry& entry = ledger.entries().at(0);
  EXPECT_EQ(entry.kind, StepKind::kAllGather);
  EXPECT_EQ(entry.payload_bytes, 3 * 5 * 4);
  EXPECT_EQ(entry.cause, Cause::kExplicit);
}

TEST(TensorDocs, MakesATensorOnAMesh) { testing::run_ranks(4, makes_a_tensor_on_a_mesh); }
TEST(TensorDocs, MovesBetweenPlacements) { testing::run_ranks(4, moves_between_placements); }
TEST(TensorDocs, ReadsTheLedger) { testing::run_ranks(4, reads_the_ledger); }

}  // namespace
}  // namespace dtensor
