// The code of docs/tensor.md.

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/tensor/communication.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/ledger.h"
#include "dtensor/tensor/ledger_export.h"
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

void takes_what_one_rank_has(comm::Comm& world) {
  const DeviceMesh mesh(world, {{"x", 4}});
  const Tensor mine = world.rank() == 2 ? Tensor::arange(10).view({5, 2}) : Tensor();
  const DTensor t = distribute(mine, mesh, {Shard(0)},
                               {.from_rank = 2, .shape = Shape{5, 2}, .dtype = DType::kFloat32});
  EXPECT_EQ(Context::current().slot<Ledger>().payload_bytes(),
            4 * 2 * 4);                                   // rows 2,1,1,1: one stays
  EXPECT_EQ(full_on(t, 3).defined(), world.rank() == 3);  // the whole value, on rank 3
}

void agrees_on_a_shape(comm::Comm& world) {
  const DeviceMesh mesh(world, {{"x", 4}});
  const int64_t rows = mesh.coordinate("x") % 2 == 0 ? 3 : 2;  // 10 rows, by the cut rule
  const DTensor piece(Tensor::zeros({rows, 2}));
  EXPECT_EQ(from_local(piece, mesh, {Shard(0)}, {.shape = kAgree}).shape(), (Shape{10, 2}));
  EXPECT_EQ(from_local(piece, mesh, {Shard(0)}, {.shape = {10, 2}}).shape(), (Shape{10, 2}));
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

void moves_a_list_and_does_not_wait(comm::Comm& world) {
  const DeviceMesh mesh(world, {{"x", 4}});
  const std::vector<DTensor> ts{zeros({7, 2}, mesh, {Shard(0)}), zeros({5}, mesh, {Shard(0)})};
  std::vector<Layout> whole;
  for (const DTensor& t : ts) whole.push_back(t.layout().with(0, Replicate()));
  Pending<std::vector<DTensor>> moving = redistribute_async(ts, whole);
  // ... other work ...
  EXPECT_EQ(moving.wait()[0].local_tensor().shape(), (Shape{7, 2}));
  EXPECT_EQ(world.counters().calls, 1);
}

void moves_to_another_mesh(comm::Comm& world) {
  const DeviceMesh two(world, {{"x", 2}}, {0, 1});
  const DeviceMesh three(world, {{"y", 3}}, {1, 2, 3});
  const DTensor t = distribute(Tensor::arange(5), two, {Shard(0)});  // 3,2
  const DTensor moved = redistribute(t, three, {Shard(0)});          // 2,2,1
  EXPECT_EQ(moved.has_local(), world.rank() > 0);
  EXPECT_EQ(moved.shape(), Shape{5});
  EXPECT_EQ(Context::current().slot<Ledger>().payload_bytes(), 20);
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
  EXPECT_EQ(sums(ledger).at(0).site.line, entry.site.line);
  std::ofstream(std::string(std::getenv("TEST_TMPDIR")) + "/trace." + std::to_string(world.rank()) +
                ".json")
      << to_trace(ledger, world.rank());
}

void sends_nothing_where_it_must_not(comm::Comm& world) {
  const DeviceMesh mesh(world, {{"x", 4}});
  const DTensor t = distribute(Tensor::arange(5), mesh, {Shard(0)});
  {
    const NoCommunication silent;
    EXPECT_THROW(static_cast<void>(redistribute(t, {Replicate()})), PlacementError);
  }
  const CommunicationCount count;
  static_cast<void>(redistribute(t, {Replicate()}));
  EXPECT_EQ(count.totals().payload_bytes, 3 * 5 * 4);
}

TEST(TensorDocs, MakesATensorOnAMesh) { testing::run_ranks(4, makes_a_tensor_on_a_mesh); }
TEST(TensorDocs, TakesWhatOneRankHas) { testing::run_ranks(4, takes_what_one_rank_has); }
TEST(TensorDocs, AgreesOnAShape) { testing::run_ranks(4, agrees_on_a_shape); }
TEST(TensorDocs, MovesBetweenPlacements) { testing::run_ranks(4, moves_between_placements); }
TEST(TensorDocs, MovesAListAndDoesNotWait) {
  testing::run_ranks(4, moves_a_list_and_does_not_wait);
}
TEST(TensorDocs, MovesToAnotherMesh) { testing::run_ranks(4, moves_to_another_mesh); }
TEST(TensorDocs, ReadsTheLedger) { testing::run_ranks(4, reads_the_ledger); }
TEST(TensorDocs, SendsNothingWhereItMustNot) {
  testing::run_ranks(4, sends_nothing_where_it_must_not);
}

}  // namespace
}  // namespace dtensor
