// Ranks that are processes over UCX, through shared memory and by TCP: where a rank dies, UCX ends
// no other, says nothing, and leaves nothing behind. What the others hear is in
// tests/comm/failures.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/base/deadline.h"
#include "dtensor/tests/support/subprocess.h"

namespace dtensor {
namespace {

using testing::Subprocess;

constexpr int kSize = 4;
constexpr int kVictim = 2;
// Survivors must not come near the deadline of their operation, which is 300 s.
constexpr std::chrono::seconds kBound{60};

class UcxFailure : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    // The name of a test with a parameter has a slash.
    std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::ranges::replace(name, '/', '.');
    directory = ::testing::TempDir() + "/ucx_failure." + name;
    std::filesystem::remove_all(directory);
    std::filesystem::create_directories(directory);
    shared_before = shared_memory();
  }

  // What is in /dev/shm of UCX.
  static std::set<std::string> shared_memory() {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      const std::string name = entry.path().filename();
      if (name.rfind("ucx", 0) == 0) names.insert(name);
    }
    return names;
  }

  std::unique_ptr<Subprocess> start(const std::string& scenario, int rank) const {
    testing::ProcessOptions options;
    options.environment = {{"DTENSOR_RANK", std::to_string(rank)},
                           {"DTENSOR_WORLD_SIZE", std::to_string(kSize)},
                           {"DTENSOR_STORE", "file:" + directory + "/store"},
                           {"DTENSOR_COMM", "ucx://?shm=off&tls=" + GetParam()}};
    options.bound = kBound;
    return std::make_unique<Subprocess>(
        std::vector<std::string>{std::string(std::getenv("TEST_SRCDIR")) + "/" +
                                     std::getenv("TEST_WORKSPACE") +
                                     "/tests/comm/gloo/failing_rank",
                                 scenario, directory},
        options);
  }

  void start_all(const std::string& scenario) {
    for (int r = 0; r < kSize; ++r) ranks.push_back(start(scenario, r));
  }
  void wait_until_ready() {
    for (const auto& r : ranks) ASSERT_TRUE(r->wait_for_output("ready\n")) << r->wait().out;
  }
  void kill_rank(int rank) {
    kill(ranks[static_cast<size_t>(rank)]->pid(), SIGKILL);
    ranks[static_cast<size_t>(rank)]->wait();
  }
  void touch(const std::string& name) const { std::ofstream(directory + "/" + name) << "1"; }
  void expect_nothing_left() const {
    for (const auto& p : ranks) EXPECT_TRUE(p->group_is_gone());
    // Of another test that runs now, a name may be there for a moment.
    const Deadline soon = Deadline::after(kBound);
    const auto more_than_before = [&] {
      return !std::ranges::includes(shared_before, shared_memory());
    };
    while (more_than_before() && !soon.expired()) std::this_thread::yield();
    EXPECT_FALSE(more_than_before()) << *shared_memory().begin();
  }

  static void expect_line(const std::string& out, const std::string& line) {
    EXPECT_NE(out.find(line), std::string::npos) << "no \"" << line << "\" in:\n" << out;
  }

  std::string directory;
  std::set<std::string> shared_before;
  std::vector<std::unique_ptr<Subprocess>> ranks;
};

// In the middle of an 8 MiB all-reduce: all others name it, and no memory is written afterwards.
TEST_P(UcxFailure, ARankKilledInAnAllReduceIsNamedByAll) {
  for (const int victim : {kVictim, 0}) {
    SetUp();
    ranks.clear();
    start_all("loop");
    wait_until_ready();
    kill_rank(victim);
    for (int r = 0; r < kSize; ++r) {
      if (r == victim) continue;
      Subprocess& p = *ranks[static_cast<size_t>(r)];
      EXPECT_TRUE(p.wait_for_output("called again")) << p.wait().out;
    }
    touch("all-threw");
    for (int r = 0; r < kSize; ++r) {
      if (r == victim) continue;
      const auto result = ranks[static_cast<size_t>(r)]->wait();
      EXPECT_EQ(result.status, 0) << result.out << result.err;
      expect_line(result.out, "error kind=PeerLost culprit=" + std::to_string(victim) +
                                  " proved=1 op=all_reduce label=gradients bytes=" +
                                  std::to_string(2 * (8 << 20)) +
                                  " sequenced=1 timed=1 comm=world");
      expect_line(result.out, "called again: the first error\n");
      expect_line(result.out, "untouched\n");
      EXPECT_EQ(result.err, "");
      EXPECT_EQ(result.out.find("UCX"), std::string::npos) << result.out;
    }
    expect_nothing_left();
  }
}

INSTANTIATE_TEST_SUITE_P(Tls, UcxFailure, ::testing::Values("posix,self,tcp", "tcp"),
                         [](const auto& tested) {
                           return tested.param == "tcp" ? "tcp" : "posix";
                         });

}  // namespace
}  // namespace dtensor
