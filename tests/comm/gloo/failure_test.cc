// Ranks that are processes, and what the others say when one dies or stops.

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/comm/socket.h"
#include "dtensor/tests/support/subprocess.h"

namespace dtensor {
namespace {

using testing::Subprocess;

constexpr int kSize = 4;
constexpr int kVictim = 2;
// Survivors must not come near the deadline of their operation, which is 300 s.
constexpr std::chrono::seconds kBound{60};

std::string program() {
  return std::string(std::getenv("TEST_SRCDIR")) + "/" + std::getenv("TEST_WORKSPACE") +
         "/tests/comm/gloo/failing_rank";
}

class Failure : public ::testing::Test {
 protected:
  void SetUp() override {
    directory = ::testing::TempDir() + "/failure." +
                ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(directory);
    std::filesystem::create_directories(directory);
    store = "file:" + directory + "/store";
  }

  std::unique_ptr<Subprocess> start(const std::string& scenario, int rank) const {
    testing::ProcessOptions options;
    options.environment = {{"DTENSOR_RANK", std::to_string(rank)},
                           {"DTENSOR_WORLD_SIZE", std::to_string(kSize)},
                           {"DTENSOR_STORE", store},
                           {"DTENSOR_COMM", url}};
    options.bound = kBound;
    return std::make_unique<Subprocess>(std::vector<std::string>{program(), scenario, directory},
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

  static void expect_line(const std::string& out, const std::string& line) {
    EXPECT_NE(out.find(line), std::string::npos) << "no \"" << line << "\" in:\n" << out;
  }

  // Kills `victim` in the middle of an 8 MiB all-reduce; all others name it and nothing else.
  void kill_in_all_reduce(int victim) {
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
      // in and out, 8 MiB each
      expect_line(result.out, "error kind=PeerLost culprit=" + std::to_string(victim) +
                                  " proved=1 op=all_reduce label=gradients bytes=" +
                                  std::to_string(2 * (8 << 20)) +
                                  " sequenced=1 timed=1 comm=world");
      expect_line(result.out, "called again: the first error\n");
      expect_line(result.out, "untouched\n");
    }
    for (const auto& p : ranks) EXPECT_TRUE(p->group_is_gone());
  }

  std::string directory;
  std::string store;
  std::string url = "gloo";
  std::vector<std::unique_ptr<Subprocess>> ranks;
};

// torchft#164, mlx#4060, gloo#520, pytorch#67742; pytorch#135712: dead is dead.
TEST_F(Failure, ARankKilledInAnAllReduceIsNamedByAll) { kill_in_all_reduce(kVictim); }

TEST_F(Failure, ARankKilledInAnAllReduceOverTcpIsNamedByAll) {
  url = "gloo://?shm=off";
  kill_in_all_reduce(kVictim);
}

// The same of the rank that serves the store.
TEST_F(Failure, TheRankThatServesTheStoreIsNamedByAll) {
  {
    const comm::internal::Fd free = comm::internal::listen_on("127.0.0.1", 0);
    store = comm::internal::to_string(comm::internal::local_address(free));
  }
  kill_in_all_reduce(0);
}

// torchft#164: before the first operation of a subgroup; other groups live on.
TEST_F(Failure, ARankKilledBeforeTheFirstCallOfAGroupIsNamedAndOtherGroupsLiveOn) {
  start_all("subgroup");
  wait_until_ready();
  kill_rank(kVictim);
  touch("killed");
  std::vector<std::string> out;
  for (const auto& p : ranks) out.push_back(p->wait().out);
  const std::string line = "error kind=PeerLost culprit=1 proved=1 op=all_reduce label=gradients";
  expect_line(out[1], line);
  expect_line(out[3], line);
  expect_line(out[0], "the pair has 2\n");
  expect_line(out[1], "the pair has 2\n");
}

// gloo#511: a stopped rank is named by all, and gets an error of its own when it wakes.
TEST_F(Failure, AStoppedRankIsSuspectedAtTheDeadline) {
  start_all("stall");
  wait_until_ready();
  Subprocess& victim = *ranks[kVictim];
  kill(victim.pid(), SIGSTOP);
  for (int r = 0; r < kSize; ++r) {
    if (r == kVictim) continue;
    Subprocess& p = *ranks[static_cast<size_t>(r)];
    EXPECT_TRUE(p.wait_for_output("error kind=Timeout culprit=2 proved=0 op=all_reduce"))
        << p.wait().out;
  }
  kill(victim.pid(), SIGCONT);
  EXPECT_TRUE(victim.wait_for_output("error kind=Timeout culprit=2 proved=0 op=all_reduce"))
      << victim.wait().out;
  for (const auto& p : ranks) EXPECT_EQ(p->wait().status, 0);
}

// gloo#511: silence beyond `liveness`, long before the deadline.
TEST_F(Failure, ASilentRankIsLostBeforeTheDeadline) {
  url = "gloo://?liveness=1";
  start_all("loop");
  wait_until_ready();
  kill(ranks[kVictim]->pid(), SIGSTOP);
  for (int r = 0; r < kSize; ++r) {
    if (r == kVictim) continue;
    Subprocess& p = *ranks[static_cast<size_t>(r)];
    EXPECT_TRUE(p.wait_for_output("error kind=PeerLost culprit=2 proved=0")) << p.wait().out;
  }
}

// pytorch#135712, nccl#1777: survivors form the next generation; the late twin of the killed rank
// is refused by the old one.
TEST_F(Failure, SurvivorsFormANewWorldAndALateTwinIsRefused) {
  start_all("regenerate");
  wait_until_ready();
  kill_rank(kVictim);
  for (int r = 0; r < kSize; ++r) {
    if (r == kVictim) continue;
    const auto result = ranks[static_cast<size_t>(r)]->wait();
    EXPECT_EQ(result.status, 0) << result.out << result.err;
    expect_line(result.out, "the new world has 3 of generation 1\n");
  }
  const auto twin = start("join", kVictim)->wait();
  EXPECT_EQ(twin.status, 3) << twin.out;
  expect_line(twin.out, "error kind=Mismatch culprit=2");
  expect_line(twin.out, "generation 0, which is over");
}

}  // namespace
}  // namespace dtensor
