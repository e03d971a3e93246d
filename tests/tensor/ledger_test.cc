#include "dtensor/tensor/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/base/context.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/ledger_export.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using testing::run_ranks;
using Json = nlohmann::json;

Ledger& ledger() { return Context::current().slot<Ledger>(); }

LedgerEntry entry(const std::string& op, int line, int64_t call, int64_t bytes) {
  LedgerEntry e;
  e.kind = StepKind::kAllGather;
  e.mesh_dims = {0};
  e.op = op;
  e.from = e.to = Layout::replicated(MeshLayout({{"x", 2}}), {4});
  e.payload_bytes = bytes;
  e.wire_bytes = bytes / 2;
  e.site = {"model/block.cc", line};
  e.call = call;
  return e;
}

TEST(Ledger, SumsByOpAndCallSiteInAnOrderThatDoesNotDependOnTime) {
  Ledger a;
  a.enter(entry("redistribute", 9, 1, 100));
  a.enter(entry("redistribute", 9, 1, 20));  // in the same call
  a.enter(entry("redistribute", 10, 2, 3));
  a.enter(entry("fsdp", 5, 3, 8));
  a.enter(entry("redistribute", 9, 4, 1));
  Ledger b;  // the same in another order
  for (const size_t i : {4, 3, 2, 1, 0}) b.enter(a.entries()[i]);
  const std::vector<LedgerSum> lines = sums(a);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].op, "fsdp");
  EXPECT_EQ(lines[1].site.line, 9);
  EXPECT_EQ(lines[1].entries, 3);
  EXPECT_EQ(lines[1].calls, 2);
  EXPECT_EQ(lines[1].payload_bytes, 121);
  EXPECT_EQ(lines[1].wire_bytes, 60);
  EXPECT_EQ(lines[2].site.line, 10);
  EXPECT_EQ(to_string(a), to_string(b));
  EXPECT_NE(to_string(a).find("block.cc:9"), std::string::npos) << to_string(a);
  EXPECT_EQ(a.payload_bytes(), 132);
}

// pytorch#167655: who asked, from where, for how much; and the time that it took on this rank.
TEST(Ledger, IsExportedAsJson) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const DTensor t = distribute(Tensor::arange(6).view({3, 2}), mesh, {Shard(0)});
    ledger().clear();
    const int line = __LINE__ + 1;
    static_cast<void>(redistribute(t, {Replicate()}, {.wire_dtype = DType::kBFloat16}));
    const Json json = Json::parse(to_json(ledger()));
    EXPECT_EQ(json.at("payload_bytes"), 24);
    EXPECT_EQ(json.at("wire_bytes"), 12);
    EXPECT_EQ(json.at("dropped"), 0);
    ASSERT_EQ(json.at("entries").size(), 1U);
    const Json& e = json["entries"][0];
    EXPECT_EQ(e.at("kind"), "all_gather");
    EXPECT_EQ(e.at("calls"), 1);
    EXPECT_EQ(e.at("op"), "redistribute");
    EXPECT_EQ(e.at("cause"), "explicit");
    EXPECT_EQ(e.at("mesh_dims"), Json({"x"}));
    EXPECT_EQ(e.at("from"), "x=2:S(0)");
    EXPECT_EQ(e.at("to"), "x=2:R");
    EXPECT_EQ(e.at("shape"), Json({3, 2}));
    EXPECT_EQ(e.at("dtype"), "f32");
    EXPECT_EQ(e.at("wire_dtype"), "bf16");
    EXPECT_EQ(e.at("line"), line);
    EXPECT_LE(e.at("begin_ns").get<int64_t>(), e.at("end_ns").get<int64_t>());
    ASSERT_EQ(json.at("sums").size(), 1U);
    EXPECT_EQ(json["sums"][0].at("line"), line);
    EXPECT_EQ(json["sums"][0].at("entries"), 1);
  });
}

TEST(Ledger, ALabelThatIsNoTextDoesNotBreakTheJson) {
  Ledger one;
  LedgerEntry e = entry("redistribute", 1, 1, 4);
  e.label = "\xff\"\n";
  one.enter(e);
  EXPECT_FALSE(Json::parse(to_json(one)).empty());
  EXPECT_FALSE(Json::parse(to_trace(one, 0)).empty());
}

TEST(Ledger, IsExportedAsATraceWithOneEventPerCall) {
  Ledger l;
  const auto at = [](int64_t us) { return LedgerEntry::Time(std::chrono::microseconds(us)); };
  const auto enter = [&](int64_t call, int64_t begin, int64_t end) {
    LedgerEntry e = entry("redistribute", 7, call, 10);
    e.begin = e.end = at(begin);
    l.enter(e);
    l.end_call(call, at(end));
  };
  enter(1, 100, 200);
  enter(1, 100, 200);  // a second tensor in the call
  enter(2, 150, 300);  // while the first is under way
  enter(3, 250, 260);
  const Json trace = Json::parse(to_trace(l, 3));
  std::vector<Json> events;
  bool named = false;
  for (const Json& e : trace.at("traceEvents")) {
    EXPECT_EQ(e.at("pid"), 3);
    if (e.at("ph") == "X") events.push_back(e);
    named = named || e.at("ph") == "M";
  }
  EXPECT_TRUE(named);
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].at("ts"), 100.0);
  EXPECT_EQ(events[0].at("dur"), 100.0);
  EXPECT_EQ(events[0].at("args").at("payload_bytes"), 20);
  EXPECT_EQ(events[0].at("args").at("tensors").size(), 2U);
  EXPECT_EQ(events[0].at("args").at("calls"), 1);
  EXPECT_EQ(events[0].at("args").at("site"), "block.cc:7");
  // Events of one lane do not overlap.
  EXPECT_NE(events[0].at("tid"), events[1].at("tid"));
  EXPECT_EQ(events[0].at("tid"), events[2].at("tid"));
}

TEST(Ledger, ACallLastsUntilItsResultsAreTaken) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const DTensor t = distribute(Tensor::arange(6), mesh, {Shard(0)});
    ledger().clear();
    auto pending = redistribute_async(t, t.layout().with(0, Replicate()));
    ASSERT_EQ(ledger().entries().size(), 1U);
    EXPECT_EQ(ledger().entries()[0].begin, ledger().entries()[0].end) << "not yet";
    static_cast<void>(pending.wait());
    EXPECT_LT(ledger().entries()[0].begin, ledger().entries()[0].end);
  });
}

TEST(Ledger, KeepsTheNewestEntriesAndAllBytes) {
  Ledger ledger;
  const auto n = static_cast<int64_t>(Ledger::kMostEntries) + 1;
  for (int64_t i = 0; i < n; ++i) {
    LedgerEntry e;
    e.payload_bytes = 1;
    e.wire_bytes = 2;
    e.call = i;
    ledger.enter(e);
  }
  EXPECT_EQ(ledger.payload_bytes(), n);
  EXPECT_EQ(ledger.wire_bytes(), 2 * n);
  EXPECT_EQ(ledger.entries().back().call, n - 1);
  EXPECT_EQ(ledger.dropped() + static_cast<int64_t>(ledger.entries().size()), n);
  EXPECT_LE(ledger.entries().size(), Ledger::kMostEntries);
  const auto end = LedgerEntry::Time(std::chrono::seconds(5));
  ledger.end_call(0, end);  // dropped: nothing to write
  ledger.end_call(n - 1, end);
  EXPECT_EQ(ledger.entries().back().end, end);
  EXPECT_NE(ledger.entries().front().end, end);
}

}  // namespace
}  // namespace dtensor
