// What a Comm keeps of its calls, and what it writes when it fails.

#include "dtensor/comm/trace.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/comm/comm.h"
#include "dtensor/comm/recorder.h"
#include "dtensor/tests/comm/values.h"
#include "dtensor/tests/support/run_ranks.h"

namespace {
thread_local int64_t mallocs = 0;
}  // namespace

// The C library's own, counted: operator new comes here, too. Sanitizers bring theirs.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define DTENSOR_COUNTS_MALLOC 1
extern "C" {
void* __libc_malloc(size_t bytes);
void* malloc(size_t bytes) {
  ++mallocs;
  return __libc_malloc(bytes);
}
}
#else
#define DTENSOR_COUNTS_MALLOC 0
#endif

namespace dtensor::testing {
namespace {

namespace fs = std::filesystem;
using comm::Call;
using comm::CallState;
using comm::Comm;
using comm::CommError;
using comm::OpKind;
using comm::Recorder;
using comm::ReduceOp;
using comm::Trace;

std::string fresh_directory() {
  const std::string path = std::string(::testing::TempDir()) + "/traces." +
                           ::testing::UnitTest::GetInstance()->current_test_info()->name();
  fs::remove_all(path);
  return path;
}

std::vector<Trace> read_all(const std::string& directory) {
  std::vector<Trace> out;
  if (!fs::exists(directory)) return out;
  for (const auto& entry : fs::directory_iterator(directory)) {
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    out.push_back(comm::trace_of_json(text.str()));
  }
  std::ranges::sort(out, {}, [](const Trace& t) {
    return t.comm + std::to_string(t.ranks[static_cast<size_t>(t.rank)]);
  });
  return out;
}

Call call_of(OpKind op, int64_t sequence, const std::string& label = "") {
  Call call;
  call.op = op;
  call.sequence = sequence;
  call.label = label;
  call.key.op = static_cast<uint8_t>(op);
  return call;
}

TEST(Trace, HasWhatEveryCallWas) {
  run_ranks(2, [](Comm& world) {
    std::vector<float> x(10, 1);
    world.all_reduce(view(std::as_const(x)), view(x), ReduceOp::kMax, {.label = "loss"}).wait();
    std::vector<double> y(3, 1);
    world.broadcast(view(y), 1).wait();
    const Trace t = world.trace();
    EXPECT_EQ(t.run_id, world.run_id());
    EXPECT_EQ(t.comm, "world");
    EXPECT_EQ(t.ranks, (std::vector<int>{0, 1}));
    EXPECT_EQ(t.rank, world.rank());
    EXPECT_EQ(t.error, "");
    ASSERT_EQ(t.calls.size(), 2U);
    EXPECT_EQ(comm::describe(t.calls[0].key, t.calls[0].label_text()),
              "all_reduce max f32[10] \"loss\"");
    EXPECT_EQ(t.calls[0].bytes, 80);  // in and out
    EXPECT_EQ(comm::describe(t.calls[1].key, t.calls[1].label_text()),
              "broadcast f64[3] with root 1");
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(t.calls[i].sequence, static_cast<int64_t>(i));
      EXPECT_EQ(t.calls[i].state, CallState::kDone);
      EXPECT_LT(0, t.calls[i].issued);
      EXPECT_LE(t.calls[i].issued, t.calls[i].started);
      EXPECT_LE(t.calls[i].started, t.calls[i].completed);
      EXPECT_LE(t.calls[i].completed, t.taken);
    }
  });
}

TEST(Trace, AGroupIsKnownByItsPathAndItsRanksOfTheWorld) {
  run_ranks(4, [](Comm& world) {
    if (world.rank() == 0) return;
    const auto three = world.group(std::vector<int>{3, 1, 2}, "three");
    if (three->rank() == 1) return;
    const auto pair = three->group(std::vector<int>{2, 0}, "pair");
    const Trace t = pair->trace();
    EXPECT_EQ(t.comm, "world/three/pair");
    EXPECT_EQ(t.ranks, (std::vector<int>{2, 3}));
    EXPECT_EQ(t.ranks[static_cast<size_t>(t.rank)], world.rank());
  });
}

TEST(Trace, TheLast1024CallsAreKept) {
  Recorder recorder((Trace()));
  for (int64_t s = 0; s < 3000; ++s) {
    recorder.issue(call_of(OpKind::kBarrier, s), 0);
    if (s < 2990) recorder.start(s);
    if (s < 2980) recorder.end(s, false);
  }
  const auto calls = recorder.trace().calls;
  ASSERT_EQ(calls.size(), static_cast<size_t>(comm::kRecordedCalls));
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto s = static_cast<int64_t>(3000 - calls.size() + i);
    EXPECT_EQ(calls[i].sequence, s);
    EXPECT_EQ(calls[i].state, s < 2980   ? CallState::kDone
                              : s < 2990 ? CallState::kRunning
                                         : CallState::kQueued);
  }
  // One that is no longer kept may still end.
  recorder.start(5);
  recorder.end(5, true);
  EXPECT_EQ(recorder.totals()[static_cast<size_t>(OpKind::kBarrier)].calls, 2980);
}

// More calls than are kept, and none has ended: all of them count, and are shown.
TEST(Trace, CallsUnderWayAreNeverForgotten) {
  constexpr int64_t kCalls = 3 * comm::kRecordedCalls + 1;
  Recorder recorder((Trace()));
  for (int64_t s = 0; s < kCalls; ++s) recorder.issue(call_of(OpKind::kBarrier, s), 2);
  const auto calls = recorder.trace().calls;
  ASSERT_EQ(calls.size(), static_cast<size_t>(kCalls));
  for (size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(calls[i].sequence, static_cast<int64_t>(i));
  for (int64_t s = 0; s < kCalls; ++s) {
    recorder.start(s);
    recorder.end(s, s % 3 == 0);
  }
  const comm::OpTotals totals = recorder.totals()[static_cast<size_t>(OpKind::kBarrier)];
  EXPECT_EQ(totals.calls, kCalls);
  EXPECT_EQ(totals.bytes, 2 * kCalls);
  EXPECT_EQ(totals.failures, (kCalls + 2) / 3);
  EXPECT_EQ(recorder.trace().calls.size(), static_cast<size_t>(comm::kRecordedCalls));
}

// A disk that takes its time: here a pipe that nobody reads yet.
TEST(Trace, WhoFindsTheErrorDoesNotWaitForTheDisk) {
  const std::string directory = fresh_directory();
  const Trace about{.run_id = "run", .comm = "world", .ranks = {0}};
  const fs::path file = comm::write_trace(about, directory);
  fs::remove(file);
  const std::string pipe = file.string() + "." + std::to_string(getpid());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  Recorder recorder(about);
  recorder.set_directory(directory);
  recorder.ended("gone");
  recorder.ended("a second reason does not count");
  std::ostringstream text;
  std::thread reader([&] { text << std::ifstream(pipe).rdbuf(); });
  recorder.flush();
  reader.join();
  EXPECT_EQ(comm::trace_of_json(text.str()).error, "gone");
  EXPECT_TRUE(fs::exists(file));
}

// A Comm may end while it is being made, before it is told where its trace belongs.
TEST(Trace, IsWrittenWhereTheCommEndedBeforeItsDirectoryWasGiven) {
  const std::string directory = fresh_directory();
  Recorder recorder(Trace{.run_id = "run", .comm = "world", .ranks = {0}});
  recorder.ended("gone");
  recorder.set_directory("");
  recorder.set_directory(directory);
  recorder.flush();
  const auto traces = read_all(directory);
  ASSERT_EQ(traces.size(), 1U);
  EXPECT_EQ(traces[0].error, "gone");
  fs::remove_all(directory);
  recorder.set_directory(directory);  // it has been written
  recorder.flush();
  EXPECT_FALSE(fs::exists(directory));
}

TEST(Trace, RecordingACallTakesNoMemory) {
  if (DTENSOR_COUNTS_MALLOC == 0) GTEST_SKIP() << "malloc is the sanitizer's, or clang's";
  Recorder recorder((Trace()));
  Call call = call_of(OpKind::kAllReduce, 0, "a label that is longer than the record has room for");
  recorder.issue(call, 8);
  recorder.end(0, false);
  const int64_t before = mallocs;
  EXPECT_GT(before, 0);
  for (call.sequence = 1; call.sequence < 3000; ++call.sequence) {
    recorder.issue(call, 8);
    recorder.start(call.sequence);
    recorder.end(call.sequence, false);
  }
  EXPECT_EQ(mallocs, before);
  EXPECT_EQ(recorder.totals()[static_cast<size_t>(OpKind::kAllReduce)].calls, 3000);
}

TEST(Trace, ComesBackFromItsText) {
  Trace t{.run_id = "20260102T030405Z-89abcdef",
          .generation = 3,
          .comm = "world/\"tp\"",
          .ranks = {4, 1},
          .rank = 1,
          .taken = 99,
          .error = "gone\n"};
  Recorder recorder(t);
  Call call = call_of(OpKind::kReduceScatter, 7, "grad \xc3\xa9 of a layer with a long long name");
  call.key.reduce = static_cast<uint8_t>(ReduceOp::kAvg);
  call.key.dtype = static_cast<uint8_t>(DType::kBFloat16);
  call.key.count = int64_t{1} << 40;
  call.key.root = 2;
  recorder.issue(call, 123);
  t.calls = {recorder.trace().calls.back()};
  const Trace back = comm::trace_of_json(comm::to_json(t));
  EXPECT_EQ(comm::to_json(back), comm::to_json(t));
  EXPECT_EQ(back.ranks, t.ranks);
  EXPECT_EQ(back.error, t.error);
  ASSERT_EQ(back.calls.size(), 1U);
  EXPECT_EQ(back.calls[0].key.count, int64_t{1} << 40);
  EXPECT_EQ(back.calls[0].hash, call.key.hash());
  EXPECT_EQ(back.calls[0].label_text(), t.calls[0].label_text());
  for (const char* text : {"", "{}", "[1]", "{\"run\":\"x\"}"}) {
    EXPECT_THROW(comm::trace_of_json(text), Error) << text;
  }
}

// Rank 0 fails in its call, rank 1 is in no call at all, rank 2 is in another one.
TEST(Trace, EveryRankWritesItsOwnWhenTheCommFailsAndNoneWithoutADirectory) {
  const std::string directory = fresh_directory();
  for (const std::string& given : {std::string(), directory}) {
    run_ranks(3, [&](Comm& world) {
      world.set_trace_directory(given);
      const auto group = world.group(std::vector<int>{0, 1, 2}, "g");
      group->barrier().wait();
      try {
        if (world.rank() == 1) {
          while (world.trace().error.empty()) std::this_thread::yield();
          return;
        }
        std::vector<float> x(world.rank() == 0 ? 4 : 5, 1);
        world.all_reduce(view(std::as_const(x)), view(x), ReduceOp::kSum).wait();
        ADD_FAILURE() << "a mismatch passed";
      } catch (const CommError&) {
        // what it says is tested elsewhere
      }
    });
    EXPECT_EQ(fs::exists(directory), !given.empty());
  }
  const auto traces = read_all(directory);
  ASSERT_EQ(traces.size(), 3U);  // of the world; the group is well
  for (int r = 0; r < 3; ++r) {
    const Trace& t = traces[static_cast<size_t>(r)];
    EXPECT_EQ(t.rank, r);
    EXPECT_NE(t.error.find("Mismatch"), std::string::npos) << t.error;
    EXPECT_EQ(t.calls.size(), r == 1 ? 0U : 1U);
    if (r != 1) {
      EXPECT_NE(t.calls.back().state, CallState::kDone);
    }
  }
}

TEST(Trace, ADirectoryThatCannotBeWrittenIsAnError) {
  EXPECT_THROW(comm::write_trace({.ranks = {0}}, "/proc/no/such"), Error);
}

TEST(Metrics, AddUpCallsBytesAndTimes) {
  run_ranks(2, [](Comm& world) {
    const auto group = world.group(std::vector<int>{0, 1}, "a\"b");
    std::vector<float> x(10, 1);
    for (int i = 0; i < 3; ++i) {
      group->all_reduce(view(std::as_const(x)), view(x), ReduceOp::kSum).wait();
    }
    group->barrier().wait();
    const std::string text = group->metrics();
    const std::string labels =
        "{comm=\"world/a\\\"b\",rank=\"" + std::to_string(world.rank()) + "\"";
    for (const std::string& line :
         {"dtensor_comm_calls_total" + labels + ",op=\"all_reduce\"} 3\n",
          "dtensor_comm_calls_total" + labels + ",op=\"barrier\"} 1\n",
          "dtensor_comm_failures_total" + labels + ",op=\"all_reduce\"} 0\n",
          "dtensor_comm_buffer_bytes_total" + labels + ",op=\"all_reduce\"} 240\n",
          "dtensor_comm_payload_bytes_sent_total" + labels + "} 120\n",
          std::string("# TYPE dtensor_comm_running_seconds_total counter\n")}) {
      EXPECT_NE(text.find(line), std::string::npos) << "no " << line << "in\n" << text;
    }
    EXPECT_EQ(text.find("op=\"broadcast\""), std::string::npos);
    // Every line is a comment or "name{labels} number".
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      if (line[0] == '#') continue;
      const size_t space = line.rfind("} ");
      ASSERT_NE(space, std::string::npos) << line;
      EXPECT_GE(std::stod(line.substr(space + 2)), 0) << line;
    }
  });
}

}  // namespace
}  // namespace dtensor::testing
