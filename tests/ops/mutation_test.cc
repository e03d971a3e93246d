// The prover itself: a rule, a kernel or a backward that is changed while ops run is caught. The
// changes go through the Context's tap and apply to calls on a mesh only: the reference stays.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/registry.h"
#include "dtensor/tensor/kernels.h"
#include "dtensor/tests/ops/prover.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;
using testing::prove;
using testing::ProverReport;
using testing::run_ranks;

// What the prover says of an op's first entry on two ranks, under a tap.
ProverReport proved(const std::string& op, const ops::RuleTap& tap) {
  ProverReport all;
  run_ranks(2, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"a", 2}});
    for (const ops::OpEntry& entry : ops::all_ops()) {
      if (entry.name != op) continue;
      const ProverReport report = [&] {
        const ScopedSlot<ops::RuleTap> scope(tap);
        return prove(entry, mesh, {});
      }();
      if (comm.rank() == 0) all = report;
      break;
    }
  });
  return all;
}

// The rule that an op's first entry runs by.
Rule rule_of(const std::string& op) {
  for (const ops::OpEntry& entry : ops::all_ops()) {
    if (entry.name == op) return ops::rules_of(entry).front();
  }
  return {};
}

ops::RuleTap changed_rule(const std::string& rule, const std::function<void(Rule&)>& change) {
  return {.see = [rule, change](Rule& r) {
    if (r.op == rule) change(r);
  }};
}

void damage(const DTensor& t) {
  if (t.defined() && t.mesh().defined() && t.local_tensor().numel() > 0) {
    kernels::add(t.local_tensor(), Tensor::full(t.local_tensor().shape(), 0.25, t.dtype()),
                 t.local_tensor());
  }
}

// Is a row found to be missing? Three ops the prover or a backward uses itself: without a row of
// theirs it ends with an error.
bool misses(const std::string& op, const ops::RuleTap& tap) {
  try {
    return !proved(op, tap).missing.empty();
  } catch (const PlacementError&) {
    if (op != "mul" && op != "sum" && op != "transpose") throw;
    return true;
  }
}

class Op : public ::testing::TestWithParam<std::string> {};

TEST_P(Op, IsRightAsItIs) {
  const ProverReport report = proved(GetParam(), {});
  EXPECT_THAT(report.wrong, IsEmpty());
  EXPECT_THAT(report.missing, IsEmpty());
  EXPECT_GT(report.taken, 0);
}

TEST_P(Op, IsCaughtWithAnotherKernel) {
  const Rule rule = rule_of(GetParam());
  const ops::RuleTap tap{.ran = [&](const ops::OpRun& run) {
    if (run.op == rule.op) damage(run.outputs.front());
  }};
  if (GetParam() == "transpose") {  // a view: its operand is written too, and that is an error
    EXPECT_THROW(proved(GetParam(), tap), Error);
  } else {
    EXPECT_THAT(proved(GetParam(), tap).wrong, Not(IsEmpty()));
  }
}

TEST_P(Op, IsCaughtWithAnotherBackward) {
  const Rule rule = rule_of(GetParam());
  const ops::RuleTap tap{.gradients = [&](std::string_view op, std::span<DTensor> grads) {
    if (op == rule.op) damage(grads.front());
  }};
  EXPECT_THAT(proved(GetParam(), tap).wrong, Not(IsEmpty()));
}

TEST_P(Op, IsCaughtWithoutARow) {
  const Rule rule = rule_of(GetParam());
  for (const SignatureRow& row : signature_of(rule).rows) {
    if (GetParam() == "mean") break;  // a piece alone divides by its own count: no row is missing
    const auto cut = std::ranges::find_if(row.in, &Placement::is_shard);
    if (cut == row.in.end() || row.communicates) continue;
    const RuleLetters letters = parse_letters(rule);
    const auto input = static_cast<size_t>(cut - row.in.begin());
    const char letter = letters.in[input][static_cast<size_t>(cut->dim())];
    EXPECT_TRUE(misses(GetParam(), changed_rule(rule.op, [&](Rule& r) { r.uncut += letter; })))
        << "without a cut of " << letter;
  }
  for (size_t set = 0; set < rule.linear.size(); ++set) {
    const auto drop = [&](Rule& r) {
      const auto before = r.linear;
      r.linear.clear();
      for (size_t i = 0; i < before.size(); ++i) {
        if (i != set) r.linear.push_back(before[i]);
      }
    };
    EXPECT_TRUE(misses(GetParam(), changed_rule(rule.op, drop))) << "without linear set " << set;
  }
}

INSTANTIATE_TEST_SUITE_P(Sample, Op,
                         ::testing::Values("matmul", "linear", "add", "sub", "mul", "scale", "neg",
                                           "exp", "relu", "silu_mul", "sum", "mean", "transpose",
                                           "rms_norm", "rope", "log_softmax"),
                         [](const auto& info) { return info.param; });

// A row too many, or another one.
struct Mutation {
  std::string name;
  std::string op;
  std::function<void(Rule&)> change;
  friend void PrintTo(const Mutation& m, std::ostream* out) { *out << m.name; }
};

class Altered : public ::testing::TestWithParam<Mutation> {};

TEST_P(Altered, IsCaught) {
  const Mutation& mutation = GetParam();
  const Rule rule = rule_of(mutation.op);
  EXPECT_THAT(proved(mutation.op, changed_rule(rule.op, mutation.change)).wrong, Not(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(
    Rules, Altered,
    ::testing::Values(Mutation{"MatmulJointlyLinear", "matmul",
                               [](Rule& r) {
                                 r.linear = {{0, 1}};
                               }},
                      Mutation{"ReluLinear", "relu", [](Rule& r) { r.linear = {{0}}; }},
                      Mutation{"ArgmaxOverACutDim", "argmax", [](Rule& r) { r.uncut.clear(); }},
                      Mutation{"AttentionOverKeyShards", "attention",
                               [](Rule& r) { r.uncut = "d"; }},
                      Mutation{"MaxAsSum", "amax", [](Rule& r) { r.reduce = PartialOp::kSum; }},
                      Mutation{"SumAsMax", "sum", [](Rule& r) { r.reduce = PartialOp::kMax; }},
                      Mutation{"AddSeparately", "add",
                               [](Rule& r) {
                                 r.linear = {{0}, {1}};
                               }},
                      Mutation{"RopeOverACutHead", "rope", [](Rule& r) { r.uncut.clear(); }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace dtensor
