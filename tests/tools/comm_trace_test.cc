#include "dtensor/tools/comm_trace.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/comm/trace.h"
#include "dtensor/tools/trace_merge.h"

namespace dtensor::tools {
namespace {

namespace fs = std::filesystem;
using comm::CallRecord;
using comm::CallState;
using comm::OpKind;
using comm::Trace;

constexpr int64_t kSecond = 1'000'000'000;

// A call issued at `at` seconds: done one second later, or else in `state` ever since.
CallRecord call(int64_t sequence, double at, CallState state = CallState::kDone,
                OpKind op = OpKind::kBarrier) {
  CallRecord c;
  c.sequence = sequence;
  c.state = state;
  c.key.op = static_cast<uint8_t>(op);
  c.hash = c.key.hash();
  c.issued = static_cast<int64_t>(at * kSecond);
  if (state != CallState::kQueued) c.started = c.issued;
  if (state == CallState::kDone) c.completed = c.issued + kSecond;
  return c;
}

Trace trace(int rank, std::vector<CallRecord> calls, std::vector<int> ranks = {0, 1, 2},
            const std::string& name = "world") {
  Trace t;
  t.run_id = "run";
  t.comm = name;
  t.ranks = std::move(ranks);
  t.rank = rank;
  t.taken = 100 * kSecond;
  t.calls = std::move(calls);
  return t;
}

struct Result {
  int status;
  std::string out;
};

Result run(const std::vector<Trace>& traces, const std::vector<std::string>& more = {}) {
  const std::string directory = std::string(testing::TempDir()) + "/comm_trace";
  fs::remove_all(directory);
  for (const Trace& t : traces) comm::write_trace(t, directory);
  std::vector<std::string> arguments = {directory};
  arguments.insert(arguments.end(), more.begin(), more.end());
  std::ostringstream out;
  const int status = comm_trace_command(arguments, out, out);
  return {status, out.str()};
}

TEST(CommTrace, TheRankThatHasNotComeIsWaitedFor) {
  const std::vector<Trace> traces = {
      trace(0, {call(0, 1), call(1, 3, CallState::kRunning)}), trace(1, {call(0, 2.5)}),
      trace(2, {call(0, 1), call(1, 90, CallState::kFailed), call(2, 91, CallState::kQueued)})};
  const auto tables = merge(traces);
  ASSERT_EQ(tables.size(), 1U);
  const auto& rows = tables[0].rows;
  EXPECT_EQ(rows[0].waits_for, (std::vector<int>{1}));
  EXPECT_EQ(rows[1].waits_for, (std::vector<int>{}));
  EXPECT_EQ(rows[2].waits_for, (std::vector<int>{1}));
  EXPECT_DOUBLE_EQ(rows[0].seconds, 97);    // in #1 since 3
  EXPECT_DOUBLE_EQ(rows[1].seconds, 96.5);  // out of #0 since 3.5
  EXPECT_DOUBLE_EQ(rows[1].late_seconds, 1.5);
  EXPECT_DOUBLE_EQ(rows[0].late_seconds, 0);

  const Result text = run(traces);
  EXPECT_EQ(text.status, 1);
  for (const char* part : {"world of run run, generation 0: 3 ranks", "in #1 barrier",
                           "after #0 barrier", "The others wait for rank 1"}) {
    EXPECT_NE(text.out.find(part), std::string::npos) << part << "\n" << text.out;
  }
  const auto json = nlohmann::json::parse(run(traces, {"--json"}).out);
  EXPECT_EQ(json["waited_for"], nlohmann::json({1}));
  EXPECT_EQ(json["comms"][0]["ranks"][2]["waits_for"], nlohmann::json({1}));
  EXPECT_EQ(json["comms"][0]["ranks"][1]["call"], "barrier");
}

TEST(CommTrace, ARankWithoutATraceMayNotHaveCome) {
  const Result r = run(
      {trace(0, {call(0, 1, CallState::kRunning)}), trace(1, {call(0, 1, CallState::kRunning)})});
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.out.find("no trace"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("The others wait for rank 2"), std::string::npos) << r.out;
}

TEST(CommTrace, AllDoneIsNoFinding) {
  const Result r = run({trace(0, {call(0, 1)}), trace(1, {call(0, 1)}), trace(2, {call(0, 1)})});
  EXPECT_EQ(r.status, 0);
  EXPECT_NE(r.out.find("Nobody waits"), std::string::npos) << r.out;
}

TEST(CommTrace, DifferentCallsAtOnePlaceAreAFinding) {
  const Result r = run({trace(0, {call(0, 1, CallState::kFailed)}),
                        trace(1, {call(0, 1, CallState::kFailed, OpKind::kShutdown)}),
                        trace(2, {call(0, 1, CallState::kFailed)})});
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.out.find("shutdown (others: another call)"), std::string::npos) << r.out;
}

// Rank 0 waits for 1 on one Comm, 1 for 2 on another: the search begins at 2.
TEST(CommTrace, ChainsOverSeveralCommsLeadToTheirOrigin) {
  std::vector<Trace> traces = {
      trace(0, {call(0, 1, CallState::kRunning)}, {0, 1}, "world/a"),
      trace(1, {}, {0, 1}, "world/a"),
      trace(0, {call(0, 1), call(1, 2, CallState::kRunning)}, {1, 2}, "world/b"),
      trace(1, {call(0, 1)}, {1, 2}, "world/b")};
  Origin origin = origin_of(merge(traces));
  EXPECT_EQ(origin.ranks, (std::vector<int>{2}));
  EXPECT_FALSE(origin.circle);
  // And where 2 waits for 0, nobody is the first.
  traces.push_back(trace(0, {call(0, 1, CallState::kRunning)}, {2, 0}, "world/c"));
  traces.push_back(trace(1, {}, {2, 0}, "world/c"));
  origin = origin_of(merge(traces));
  EXPECT_TRUE(origin.circle);
  EXPECT_EQ(origin.ranks.size(), 3U);
}

// Of two traces of one rank the later one counts; other generations stand apart.
TEST(CommTrace, TheLatestOfARankCounts) {
  Trace early = trace(0, {call(0, 1)}, {0});
  Trace late = trace(0, {call(0, 1), call(1, 2)}, {0});
  late.taken += 1;
  Trace next = early;
  next.generation = 1;
  const auto tables = merge({late, early, next});
  ASSERT_EQ(tables.size(), 2U);
  EXPECT_EQ(tables[0].rows[0].at->sequence, 1);
  EXPECT_EQ(tables[1].rows[0].at->sequence, 0);
}

TEST(CommTrace, WrongUsageAndFilesThatAreNone) {
  std::ostringstream out;
  const auto run_with = [&](std::vector<std::string> a) { return comm_trace_command(a, out, out); };
  EXPECT_THROW(run_with({}), UsageError);
  EXPECT_THROW(run_with({"--nope", "x"}), UsageError);
  EXPECT_THROW(run_with({"/no/such/file"}), Error);
  const std::string path = std::string(testing::TempDir()) + "/none.json";
  std::ofstream(path) << "{}";
  EXPECT_THROW(run_with({path}), Error);
}

}  // namespace
}  // namespace dtensor::tools
