// `dtensor run` that is interrupted, or killed: no process is left.

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/tests/support/subprocess.h"

namespace dtensor::testing {
namespace {

constexpr int kRanks = 3;

// Every rank prints "[r] pids A B" and goes on for ten minutes.
class Interrupt : public ::testing::Test {
 protected:
  void start(const std::string& script) {
    run = std::make_unique<Subprocess>(
        std::vector<std::string>{std::string(std::getenv("TEST_SRCDIR")) + "/" +
                                     std::getenv("TEST_WORKSPACE") + "/tools/dtensor",
                                 "run", "-n", std::to_string(kRanks), "--", "sh", "-c", script},
        ProcessOptions{.bound = std::chrono::seconds(120)});
    for (int r = 0; r < kRanks; ++r) {
      ASSERT_TRUE(run->wait_for_output("[" + std::to_string(r) + "] started\n")) << run->wait().out;
    }
  }

  // The processes that the output names have ended; init may not have taken notice yet.
  static void expect_all_gone(const std::string& out) {
    int seen = 0;
    std::istringstream in(out);
    for (std::string rank, word; in >> rank >> word;) {
      if (word != "pids") continue;
      std::string line;
      std::getline(in, line);
      std::istringstream pids(line);
      for (int pid = 0; pids >> pid; ++seen) expect_gone(pid);
    }
    EXPECT_GE(seen, kRanks);
  }

  static void expect_gone(int pid) {
    const auto state_of = [pid] {
      std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
      std::string id;
      std::string name;
      std::string state = "gone";
      in >> id >> name >> state;
      return state;
    };
    const auto ended = [](const std::string& s) { return s == "gone" || s == "Z" || s == "X"; };
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!ended(state_of()) && std::chrono::steady_clock::now() < limit) {
      std::this_thread::yield();
    }
    EXPECT_TRUE(ended(state_of())) << pid << " is " << state_of();
  }

  std::unique_ptr<Subprocess> run;
};

TEST_F(Interrupt, EndsTheRanksAndWhatTheyStarted) {
  start("sleep 600 & echo pids $$ $!; echo started; wait");
  kill(run->pid(), SIGINT);
  const ProcessResult r = run->wait();
  EXPECT_EQ(r.status, 128 + SIGINT);
  expect_all_gone(r.out);
}

TEST_F(Interrupt, EndsRanksThatIgnoreIt) {
  start("trap '' INT TERM; echo pids $$; echo started; while :; do sleep 0.05; done");
  kill(run->pid(), SIGINT);
  const ProcessResult r = run->wait();
  EXPECT_EQ(r.status, 128 + SIGINT);
  expect_all_gone(r.out);
}

TEST_F(Interrupt, EndsRanksThatAreStopped) {
  start("echo pids $$; echo started; kill -STOP $$");
  kill(run->pid(), SIGTERM);
  const ProcessResult r = run->wait();
  EXPECT_EQ(r.status, 128 + SIGTERM);
  expect_all_gone(r.out);
}

TEST_F(Interrupt, TheRanksEndWithTheLauncherThatIsKilled) {
  start("echo pids $$; echo started; exec sleep 600");
  kill(run->pid(), SIGKILL);
  const ProcessResult r = run->wait();
  EXPECT_EQ(r.status, 128 + SIGKILL);
  expect_all_gone(r.out);
}

}  // namespace
}  // namespace dtensor::testing
