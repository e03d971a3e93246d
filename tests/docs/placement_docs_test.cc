// The code of docs/placement.md.

#include <gtest/gtest.h>

#include "dtensor/placement/layout.h"
#include "dtensor/placement/reshard_plan.h"

namespace dtensor {
namespace {

void fsdp_cuts_what_tensor_parallel_left() {
  const MeshLayout mesh({{"dp", 2}, {"tp", 2}});
  const Layout tp(mesh, {17, 8}, {Replicate(), Shard(0)});
  const Layout both = tp.with(mesh.dim("dp"), Shard(0));
  EXPECT_EQ(to_string(both), "dp=2,tp=2:S(0),S(0);order=0:tp,dp");
  EXPECT_EQ(to_string(both.box_of(1)), "[9:13,0:8]");  // dp 0, tp 1
  EXPECT_EQ(both.with(mesh.dim("dp"), Replicate()), tp);
}
TEST(PlacementDocs, FsdpCutsWhatTensorParallelLeft) { fsdp_cuts_what_tensor_parallel_left(); }

void a_plan_tells_its_steps_and_bytes() {
  const Layout from = parse_layout("dp=2,tp=2:P(sum),S(0)", {6, 5});
  const ReshardPlan moves = plan(from, Layout::replicated(from.mesh(), {6, 5}));
  ASSERT_EQ(moves.steps().size(), 2U);
  EXPECT_EQ(moves.steps()[0].kind, StepKind::kAllReduce);  // on dp, of this rank's rows
  EXPECT_EQ(moves.steps()[1].kind, StepKind::kAllGather);  // on tp
  EXPECT_EQ(moves.payload(), 120);                         // elements sent, over all ranks
  EXPECT_EQ(moves.payload_minimum(), 120);
}
TEST(PlacementDocs, APlanTellsItsStepsAndBytes) { a_plan_tells_its_steps_and_bytes(); }

}  // namespace
}  // namespace dtensor
