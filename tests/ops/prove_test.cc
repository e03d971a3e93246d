// Every op of the registry is proved on even, uneven and empty parts, and on a mesh of two dims
// with a tensor dim cut twice.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/registry.h"
#include "dtensor/tests/ops/prover.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;
using testing::prove;
using testing::ProverOptions;
using testing::ProverReport;
using testing::run_ranks;

struct World {
  std::string name;
  std::vector<MeshDim> dims;
  ProverOptions options;
};

class Prove : public ::testing::TestWithParam<World> {};

TEST_P(Prove, EveryRowIsRightAndNoneIsMissing) {
  int size = 1;
  for (const MeshDim& dim : GetParam().dims) size *= dim.size;
  int taken = 0;
  run_ranks(size, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, GetParam().dims);
    for (const ops::OpEntry& entry : ops::all_ops()) {
      const ProverReport report = prove(entry, mesh, GetParam().options);
      EXPECT_THAT(report.wrong, IsEmpty()) << entry.name << " on rank " << comm.rank();
      EXPECT_THAT(report.missing, IsEmpty()) << entry.name;
      EXPECT_GT(report.taken, 0) << entry.name;
      if (comm.rank() == 0) taken += report.taken;
    }
  });
  std::printf("%s: %d calls taken\n", GetParam().name.c_str(), taken);
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, Prove,
    ::testing::Values(World{"two", {{"a", 2}}, {}}, World{"three", {{"a", 3}}, {}},
                      World{"four", {{"a", 4}}, {}},
                      World{"grid", {{"a", 2}, {"b", 2}}, {.sample = 80}},
                      World{"uneven_grid", {{"a", 2}, {"b", 3}}, {.sample = 40}}),
    [](const auto& info) { return info.param.name; });

// The prover itself: a rule that is changed is caught.
struct Mutation {
  std::string name;
  std::string op;  // the rule that is changed
  std::function<void(Rule&)> change;
  bool wrong = false;  // else a row goes missing
};

class Mutated : public ::testing::TestWithParam<Mutation> {};

TEST_P(Mutated, IsCaught) {
  const Mutation& mutation = GetParam();
  run_ranks(2, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"a", 2}});
    std::vector<std::string> wrong;
    std::vector<std::string> missing;
    for (const ops::OpEntry& entry : ops::all_ops()) {
      const auto rules = ops::rules_of(entry);
      if (std::ranges::none_of(rules, [&](const Rule& r) { return r.op == mutation.op; })) continue;
      const ScopedSlot<ops::RuleTap> tap(ops::RuleTap{[&](Rule& rule) {
        if (rule.op == mutation.op) mutation.change(rule);
      }});
      const ProverReport report = prove(entry, mesh, {});
      wrong.insert(wrong.end(), report.wrong.begin(), report.wrong.end());
      missing.insert(missing.end(), report.missing.begin(), report.missing.end());
    }
    if (mutation.wrong) {
      EXPECT_THAT(wrong, Not(IsEmpty()));
    } else if (comm.rank() == 0) {
      EXPECT_THAT(missing, Not(IsEmpty()));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Rules, Mutated,
    ::testing::Values(
        Mutation{"ScaleNotLinear", "scale", [](Rule& r) { r.linear.clear(); }},
        Mutation{"MatmulLinearInOneOnly", "matmul", [](Rule& r) { r.linear = {{0}}; }},
        Mutation{"MatmulJointlyLinear", "matmul",
                 [](Rule& r) {
                   r.linear = {{0, 1}};
                 },
                 true},
        Mutation{"ReluLinear", "relu", [](Rule& r) { r.linear = {{0}}; }, true},
        Mutation{"ArgmaxOverACutDim", "argmax", [](Rule& r) { r.uncut.clear(); }, true},
        Mutation{"NormBatchUncut", "rms_norm", [](Rule& r) { r.uncut += "i"; }},
        Mutation{"AttentionOverKeyShards", "attention", [](Rule& r) { std::erase(r.uncut, 's'); },
                 true},
        Mutation{"MaxAsSum", "amax", [](Rule& r) { r.reduce = PartialOp::kSum; }, true},
        Mutation{"AddSeparately", "add",
                 [](Rule& r) {
                   r.linear = {{0}, {1}};
                 },
                 true},
        Mutation{"RopeOverACutHead", "rope", [](Rule& r) { r.uncut.clear(); }, true}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace dtensor
