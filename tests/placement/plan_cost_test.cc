#include "dtensor/placement/plan_cost.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "dtensor/tests/placement/plan_simulator.h"
#include "dtensor/tests/placement/random_layouts.h"

namespace dtensor {
namespace {

ReshardPlan plan_of(const std::string& from, const std::string& to, const Shape& shape) {
  return plan(parse_layout(from, shape), parse_layout(to, shape));
}

// A slow link on the first mesh dim, a fast one on the second.
CostModel two_speeds(double slow, double fast) {
  CostModel model;
  model.topology.mesh_dims[0] = {.bytes_per_second = slow, .latency_seconds = 1e-5};
  model.topology.mesh_dims[1] = {.bytes_per_second = fast, .latency_seconds = 1e-6};
  return model;
}

std::string steps(const ReshardPlan& plan) {
  std::string text;
  for (const ReshardStep& step : plan.steps()) {
    text += text.empty() ? "" : "; ";
    text += name_of(step.kind);
    for (size_t i = 0; i < step.mesh_dims.size(); ++i) {
      text += (i == 0 ? " " : ",") + plan.from().mesh().name(step.mesh_dims[i]);
    }
  }
  return text;
}

TEST(SecondsOf, AreMessagesAndBytesOfTheSlowestLink) {
  CostModel model;
  model.element_bytes = 2;
  model.topology.mesh_dims[0] = {.bytes_per_second = 1000, .latency_seconds = 0.5};
  model.topology.mesh_dims[1] = {.bytes_per_second = 4000, .latency_seconds = 0.25};
  // Each of 4 receives 3/4 of 400 elements of 2 bytes in 3 messages.
  EXPECT_DOUBLE_EQ(seconds_of(plan_of("a=4,b=1:S(0),R", "a=4,b=1:R,R", {400}), model),
                   3 * 0.5 + 600.0 / 1000);
  EXPECT_DOUBLE_EQ(seconds_of(plan_of("a=1,b=4:R,P(sum)", "a=1,b=4:R,R", {400}), model),
                   6 * 0.25 + 1200.0 / 4000);
  EXPECT_DOUBLE_EQ(seconds_of(plan_of("a=2,b=2:S(0),S(0)", "a=2,b=2:R,R", {400}), model),
                   3 * 0.5 + 600.0 / 1000);
  EXPECT_DOUBLE_EQ(seconds_of(plan_of("a=4,b=1:S(0),R", "a=4,b=1:R,R", {1}), model),
                   2 * 0.5 + 1.5 / 1000);  // a broadcast
  EXPECT_EQ(seconds_of(plan_of("a=4,b=1:R,R", "a=4,b=1:S(0),R", {400}), model), 0);
  model.topology.between_meshes = {.bytes_per_second = 100, .latency_seconds = 1};
  EXPECT_DOUBLE_EQ(seconds_of(plan_of("x=2:S(0)", "y=4@2-5:S(0)", {400}), model), 2 + 200.0 / 100);
}

TEST(PlanByTime, SplitsACollectiveWhereALinkIsSlow) {
  const Shape shape{1 << 20, 8};
  const auto steps_of = [&](const char* from, const char* to, const CostModel& model) {
    const Layout a = parse_layout(std::string("node=2,gpu=4:") + from, shape);
    const Layout b = parse_layout(std::string("node=2,gpu=4:") + to, shape);
    const ReshardPlan made = plan(a, b, model);
    const ReshardPlan least = plan(a, b);
    EXPECT_EQ(made.payload(), least.payload());
    EXPECT_LE(seconds_of(made, model), seconds_of(least, model));
    return steps(made);
  };
  const CostModel slow = two_speeds(1e9, 100e9);
  EXPECT_EQ(steps_of("P(sum),P(sum)", "R,R", slow),
            "reduce_scatter gpu; all_reduce node; all_gather gpu");
  EXPECT_EQ(steps_of("S(0),S(0)", "R,R", slow), "all_gather gpu; all_gather node");
  EXPECT_EQ(steps_of("P(sum),P(sum)", "S(0),S(0)", slow),
            "reduce_scatter node; reduce_scatter gpu");
  CostModel one_speed;
  for (Link& link : one_speed.topology.mesh_dims) link.latency_seconds = 0;
  EXPECT_EQ(steps_of("P(sum),P(sum)", "R,R", one_speed), "all_reduce node,gpu");
}

// Every plan by time is a right one, and never slower than the one of the least payload.
TEST(PlanByTime, IsRightAndNeverSlowerThanTheLeastPayload) {
  std::mt19937 random(12);
  int direct_ones = 0;
  for (int i = 0; i < 1500; ++i) {
    const auto& mesh = test::small_meshes()[static_cast<size_t>(test::draw(random, 4))];
    const Shape& shape = test::small_shapes()[static_cast<size_t>(test::draw(random, 8))];
    const Layout from = test::random_layout(mesh, shape, random);
    const Layout to = test::random_layout(mesh, shape, random);
    CostModel model;
    for (Link& link : model.topology.mesh_dims) {
      link.bytes_per_second = 1.0 + test::draw(random, 100);
      link.latency_seconds = test::draw(random, 3);
    }
    const ReshardPlan made = plan(from, to, model);
    const test::Locals got = test::run(made, test::make_locals(from, 5));
    EXPECT_EQ(test::compare(from, to, 5, got), "") << to_string(from) << " -> " << to_string(to);
    EXPECT_LE(seconds_of(made, model), seconds_of(plan(from, to), model) * (1 + 1e-9));
    if (from.spec().has_partial() || to.spec().has_partial()) continue;
    // Nor than one exchange of all that ranks lack, among those that hold different parts.
    ReshardStep direct;
    direct.kind = StepKind::kExchange;
    for (int m = 0; m < mesh.ndim(); ++m) {
      if (from.placement(m).is_shard() && mesh.size(m) > 1) direct.mesh_dims.push_back(m);
    }
    direct.from = from;
    direct.to = to;
    direct.payload = test::least_by_counting(from, to);
    EXPECT_LE(seconds_of(made, model), seconds_of(direct, model) * (1 + 1e-9))
        << to_string(from) << " -> " << to_string(to);
    ++direct_ones;
  }
  EXPECT_GT(direct_ones, 200);
}

// Terms are added on the mesh of `from`, before they go to the other: there, too, a slow link may
// be spared; and less be sent between the meshes than within, or more.
TEST(PlanByTime, HoldsBetweenMeshes) {
  const Shape shape{1 << 20, 8};
  const auto steps_of = [&](const char* from, const char* to, const CostModel& model) {
    const Layout a = parse_layout(from, shape);
    const Layout b = parse_layout(to, shape);
    const ReshardPlan made = plan(a, b, model);
    EXPECT_LE(seconds_of(made, model), seconds_of(plan(a, b), model));
    return steps(made);
  };
  EXPECT_EQ(steps_of("node=2,gpu=4:P(sum),P(sum)", "x=2@8-9:S(0)", two_speeds(1e9, 100e9)),
            "reduce_scatter gpu; all_reduce node; all_gather gpu; exchange");
  // Each replica adds a part of it.
  const char* replicas = "r=2,x=2:R,P(sum)";
  CostModel model;
  EXPECT_EQ(steps_of(replicas, "y=1@4:R", model), "local; reduce_scatter x; exchange");
  int faster = 0;
  std::mt19937 random(13);
  const auto& meshes = test::small_meshes();
  for (int i = 0; i < 1500; ++i) {
    const auto& mesh = meshes[static_cast<size_t>(test::draw(random, 4))];
    const MeshLayout others({{"y", 2}, {"z", 2}}, {1, 2, 20, 21});
    const Shape& small = test::small_shapes()[static_cast<size_t>(test::draw(random, 8))];
    const Layout from = test::random_layout(mesh, small, random);
    const Layout to = test::random_layout(others, small, random);
    if (from.spec().has_partial() && to.spec().has_partial()) continue;
    for (Link& link : model.topology.mesh_dims) {
      link.bytes_per_second = 1.0 + test::draw(random, 100);
      link.latency_seconds = test::draw(random, 3);
    }
    model.topology.between_meshes = {.bytes_per_second = 1.0 + test::draw(random, 100),
                                     .latency_seconds = 1};
    const ReshardPlan made = plan(from, to, model);
    const test::Locals got = test::run(made, test::make_locals(from, 5));
    EXPECT_EQ(test::compare(from, to, 5, got), "") << to_string(from) << " -> " << to_string(to);
    const double least = seconds_of(plan(from, to), model);
    EXPECT_LE(seconds_of(made, model), least * (1 + 1e-9));
    faster += seconds_of(made, model) < least * (1 - 1e-9) ? 1 : 0;
  }
  EXPECT_GT(faster, 0);
}

TEST(PeakTemporary, CountsWhatIsPackedAndWhatStaysBetweenSteps) {
  // Rows follow each other in the result, columns do not.
  EXPECT_EQ(peak_temporary(plan_of("x=2:S(0)", "x=2:R", {4, 6}), 0), 0);
  EXPECT_EQ(peak_temporary(plan_of("x=2:S(1)", "x=2:R", {4, 6}), 0), 24);
  EXPECT_EQ(peak_temporary(plan_of("x=2:P(sum)", "x=2:S(0)", {4, 6}), 1), 0);
  EXPECT_EQ(peak_temporary(plan_of("x=2:P(sum)", "x=2:S(1)", {4, 6}), 1), 24);
  EXPECT_EQ(peak_temporary(plan_of("x=2:P(sum)", "x=2:R", {4, 6}), 1), 0);
  // Rows to columns: 2x3 are packed to be sent; the rows that come are one run.
  EXPECT_EQ(peak_temporary(plan_of("x=2:S(0)", "x=2:S(1)", {4, 6}), 0), 6);
  EXPECT_EQ(peak_temporary(plan_of("x=2:S(1)", "x=2:S(0)", {4, 6}), 0), 6);
  // The reduced rows stay until they are gathered.
  EXPECT_EQ(peak_temporary(plan_of("a=2,b=2:P(sum),S(0)", "a=2,b=2:R,R", {4, 6}), 0), 12);
  // What is cut off first is kept until the exchange.
  EXPECT_EQ(peak_temporary(plan_of("x=2:R", "x=2:S(0)", {4, 6}), 0), 0);
  EXPECT_EQ(peak_temporary(plan_of("x=2:S(0)", "y=2@2,3:S(1)", {4, 6}), 2), 0);
  EXPECT_EQ(peak_temporary(plan_of("x=2:S(0)", "y=2@2,3:S(1)", {4, 6}), 0), 12);
  // A root that is not in the mesh it sends to; the receivers get one run.
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(peak_temporary(plan_of(":", "a=2@1,2:R", {4}), rank), 0) << rank;
  }
}

}  // namespace
}  // namespace dtensor
