// The failure suite: worlds of processes in which one rank gets into trouble, or makes other calls
// than the rest, over the backend that DTENSOR_TEST_COMM names. Deadlines are 300 s, the liveness
// limit 1 s; every run ends long before a deadline.

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "dtensor/comm/socket.h"
#include "dtensor/tests/comm/failures/scenario.h"
#include "dtensor/tests/support/sanitized.h"
#include "dtensor/tests/support/subprocess.h"

namespace dtensor::testing {
namespace {

namespace fs = std::filesystem;

// Of a run: from the start of its processes to the end of the last one.
constexpr std::chrono::seconds kBound{kSanitized ? 120 : 30};

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

std::string backend_url() {
  const std::string comm = variable("DTENSOR_TEST_COMM", "gloo");
  if (comm.find("://") == std::string::npos) return comm + "://?liveness=1";
  return comm + (comm.find('?') == std::string::npos ? "?" : "&") + "liveness=1";
}

int seeds() { return std::stoi(variable("DTENSOR_TEST_SEEDS", "24")); }

class FailureSuite : public ::testing::Test {
 protected:
  void start(int size, const std::vector<std::string>& what, bool tcp_store) {
    directory = ::testing::TempDir() + "/suite." + what[0] + "." + what[1];
    fs::remove_all(directory);
    fs::create_directories(directory);
    std::string store = "file:" + directory + "/store";
    if (tcp_store) {
      const comm::internal::Fd free = comm::internal::listen_on("127.0.0.1", 0);
      store = comm::internal::to_string(comm::internal::local_address(free));
    }
    for (int r = 0; r < size; ++r) {
      ProcessOptions options;
      options.environment = {{"DTENSOR_RANK", std::to_string(r)},
                             {"DTENSOR_WORLD_SIZE", std::to_string(size)},
                             {"DTENSOR_STORE", store},
                             {"DTENSOR_TRACE_DIR", directory + "/traces"},
                             {"DTENSOR_COMM", backend_url()}};
      options.bound = kBound;
      const std::string program = variable("TEST_SRCDIR", ".") + "/" +
                                  variable("TEST_WORKSPACE", "") +
                                  "/tests/comm/failures/faulty_rank";
      ranks.push_back(std::make_unique<Subprocess>(
          std::vector<std::string>{program, what[0], what[1], directory}, options));
    }
  }

  Subprocess& rank(int r) { return *ranks[static_cast<size_t>(r)]; }

  static std::string line_with(const std::string& text, const std::string& begin) {
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with(begin)) return line;
    }
    return {};
  }

  // No name in /dev/shm that some rank has had is there now.
  static void expect_no_shared_memory_left(const std::string& out) {
    std::istringstream in(out);
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with("shm ")) {
        EXPECT_FALSE(fs::exists(line.substr(4))) << line;
      }
    }
  }

  std::string directory;
  std::vector<std::unique_ptr<Subprocess>> ranks;
};

class Seeds : public FailureSuite, public ::testing::WithParamInterface<int> {
 protected:
  const Scenario s = scenario_of(GetParam());

  std::string expected_error() const {
    const bool suspected = s.fault == Fault::kStop;
    return "error kind=PeerLost culprit=" + std::to_string(s.victim) +
           " proved=" + (suspected ? "0" : "1");
  }
};

TEST_P(Seeds, EndsInTimeWithTheRightCulpritOnEveryRank) {
  SCOPED_TRACE(std::string(kFaultNames[static_cast<size_t>(s.fault)]) + " of rank " +
               std::to_string(s.victim) + " of " + std::to_string(s.size) + " in operation " +
               std::to_string(s.operation) + " of " + std::to_string(s.count) + " elements");
  start(s.size, {"seed", std::to_string(GetParam())}, s.tcp_store);
  for (int r = 0; r < s.size; ++r) {
    ASSERT_TRUE(rank(r).wait_for_output("joined\n")) << "rank " << r << ": " << rank(r).wait().out;
  }
  std::ofstream(directory + "/go") << "1";
  if (s.fault == Fault::kStop) {
    for (int r = 0; r < s.size; ++r) {
      if (r != s.victim) {
        EXPECT_TRUE(rank(r).wait_for_output("error ")) << "rank " << r;
      }
    }
    kill(rank(s.victim).pid(), SIGCONT);
  }
  std::vector<ProcessResult> results;
  for (int r = 0; r < s.size; ++r) results.push_back(rank(r).wait());

  std::string first;
  for (int r = 0; r < s.size; ++r) {
    const ProcessResult& result = results[static_cast<size_t>(r)];
    SCOPED_TRACE("rank " + std::to_string(r) + ":\n" + result.out + result.err);
    EXPECT_EQ(result.out.find("WRONG"), std::string::npos);
    EXPECT_TRUE(rank(r).group_is_gone());
    expect_no_shared_memory_left(result.out);
    const bool killed = r == s.victim && s.fault == Fault::kKill;
    EXPECT_EQ(result.status, killed ? 128 + SIGKILL : 0);
    const std::string error = line_with(result.out, "error ");
    if (s.fault == Fault::kSlow) {
      EXPECT_NE(result.out.find("all well\n"), std::string::npos);
    } else if (r != s.victim) {
      EXPECT_TRUE(error.starts_with(expected_error())) << "want " << expected_error();
      if (first.empty()) first = error;
      EXPECT_EQ(error, first);
      for (const char* line :
           {"again the first error\n", "others well\n", "next generation well\n", "untouched\n"}) {
        EXPECT_NE(result.out.find(line), std::string::npos) << "no \"" << line << "\"";
      }
    } else if (s.fault == Fault::kStop || s.fault == Fault::kCloseSockets) {
      EXPECT_FALSE(error.empty()) << "it lives, and has to hear of it";
    }
  }
  // Every rank that threw has written what it was doing.
  if (s.fault != Fault::kSlow) {
    const auto files = fs::directory_iterator(directory + "/traces");
    EXPECT_GE(std::distance(begin(files), end(files)), s.size - 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Failures, Seeds, ::testing::Range(0, seeds()));

class Mismatches : public FailureSuite, public ::testing::WithParamInterface<const char*> {};

TEST_P(Mismatches, AreReportedByAllRanksWithBothCalls) {
  const std::string kind = GetParam();
  const std::vector<std::pair<std::string, std::vector<std::string>>> words = {
      {"operation", {"all_reduce sum f32[10]", "all_gather_v f32[30]"}},
      {"dtype", {"f32[10]", "i32[10]"}},
      {"reduction", {"all_reduce sum", "all_reduce max"}},
      {"root", {"broadcast f32[10] with root 0", "broadcast f32[10] with root 1"}},
      {"counts", {"f32[100000]", "f32[200000]"}},
      {"order", {"all_reduce sum f32[10]", "all_gather_v f32[30]"}},
      {"label", {"\"A\"", "\"B\""}},
      {"more", {"all_reduce sum f32[10]", "shutdown"}}};
  start(3, {"mismatch", kind}, false);
  std::string first;
  for (int r = 0; r < 3; ++r) {
    const ProcessResult result = rank(r).wait();
    SCOPED_TRACE("rank " + std::to_string(r) + ":\n" + result.out + result.err);
    EXPECT_EQ(result.status, 0);
    const std::string error = line_with(result.out, "error ");
    EXPECT_TRUE(error.starts_with("error kind=Mismatch culprit=")) << error;
    EXPECT_NE(error.find("#1 "), std::string::npos);  // the second call
    for (const auto& [name, parts] : words) {
      for (const std::string& part : parts) {
        if (name == kind) {
          EXPECT_NE(error.find(part), std::string::npos) << "no \"" << part << "\"";
        }
      }
    }
    if (first.empty()) first = error;
    EXPECT_EQ(error, first);
  }
}

INSTANTIATE_TEST_SUITE_P(Failures, Mismatches,
                         ::testing::Values("operation", "dtype", "reduction", "root", "counts",
                                           "order", "label", "more"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace dtensor::testing
