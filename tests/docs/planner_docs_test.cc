// The code of docs/planner.md.

#include <gtest/gtest.h>

#include "dtensor/placement/layout.h"
#include "dtensor/placement/plan_cost.h"
#include "dtensor/placement/reshard_plan.h"

namespace dtensor {
namespace {

void a_plan_tells_its_steps_and_bytes() {
  const Layout from = parse_layout("dp=2,tp=2:P(sum),S(0)", {6, 5});
  const ReshardPlan moves = plan(from, Layout::replicated(from.mesh(), {6, 5}));
  ASSERT_EQ(moves.steps().size(), 2U);
  EXPECT_EQ(moves.steps()[0].kind, StepKind::kAllReduce);  // on dp, of this rank's rows
  EXPECT_EQ(moves.steps()[1].kind, StepKind::kAllGather);  // on tp
  EXPECT_EQ(moves.payload(), 120);                         // elements sent, over all ranks
  EXPECT_EQ(moves.payload_minimum(), 120);
}
TEST(PlannerDocs, APlanTellsItsStepsAndBytes) { a_plan_tells_its_steps_and_bytes(); }

void a_slow_link_carries_the_parts_only() {
  const MeshLayout mesh({{"node", 2}, {"gpu", 8}});
  const Layout from(mesh, {1 << 20}, {Partial(), Partial()});
  const Layout to = Layout::replicated(mesh, {1 << 20});
  EXPECT_EQ(plan(from, to).steps().size(), 1U);  // one all-reduce over 16
  CostModel model;
  model.topology.mesh_dims[0] = {.bytes_per_second = 10e9, .latency_seconds = 10e-6};
  model.topology.mesh_dims[1] = {.bytes_per_second = 200e9, .latency_seconds = 2e-6};
  const ReshardPlan fast = plan(from, to, model);
  ASSERT_EQ(fast.steps().size(), 3U);
  EXPECT_EQ(fast.steps()[1].kind, StepKind::kAllReduce);  // of an eighth, over the nodes
  EXPECT_EQ(fast.payload(), plan(from, to).payload());
  EXPECT_LT(seconds_of(fast, model), seconds_of(plan(from, to), model) / 2);
}
TEST(PlannerDocs, ASlowLinkCarriesThePartsOnly) { a_slow_link_carries_the_parts_only(); }

}  // namespace
}  // namespace dtensor
