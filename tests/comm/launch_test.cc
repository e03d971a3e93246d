#include "dtensor/comm/launch.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/base/deadline.h"
#include "dtensor/base/error.h"

namespace dtensor::comm {
namespace {

LaunchOptions shell(const std::string& script, int size) {
  LaunchOptions o;
  o.argv = {"sh", "-c", script};
  o.size = size;
  return o;
}

class Launch : public testing::Test {
 protected:
  void SetUp() override {
    directory = std::string(testing::TempDir()) + "/launch." +
                testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(directory);
    std::filesystem::create_directories(directory);
  }

  // The pids that scripts wrote to `directory`/*.pid.
  std::vector<pid_t> pids() const {
    std::vector<pid_t> out;
    for (const auto& file : std::filesystem::directory_iterator(directory)) {
      if (file.path().extension() != ".pid") continue;
      std::ifstream in(file.path());
      for (pid_t pid = 0; in >> pid;) out.push_back(pid);
    }
    return out;
  }

  std::string directory;
};

TEST_F(Launch, EveryRankGetsItsPlaceAndOneStore) {
  EXPECT_EQ(launch_local(shell("echo $DTENSOR_RANK $DTENSOR_LOCAL_RANK $DTENSOR_WORLD_SIZE "
                               "$DTENSOR_COMM $DTENSOR_STORE > " +
                                   directory + "/$DTENSOR_RANK",
                               3)),
            0);
  std::string store;
  for (int r = 0; r < 3; ++r) {
    std::ifstream in(directory + "/" + std::to_string(r));
    int rank = -1;
    int local = -1;
    int size = -1;
    std::string comm;
    std::string at;
    in >> rank >> local >> size >> comm >> at;
    EXPECT_EQ(rank, r);
    EXPECT_EQ(local, r);
    EXPECT_EQ(size, 3);
    EXPECT_EQ(comm, "gloo");
    EXPECT_EQ(at.substr(0, 5), "file:");
    EXPECT_TRUE(r == 0 || at == store);
    store = at;
  }
  EXPECT_FALSE(std::filesystem::exists(store.substr(5))) << "the temporary store is left";
}

TEST_F(Launch, LinesArePrefixedWholeAndPerStream) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int status = launch_local(
      shell("printf 'a%d\\nb%d' $DTENSOR_RANK $DTENSOR_RANK; echo e$DTENSOR_RANK >&2", 2));
  const std::string out = testing::internal::GetCapturedStdout();
  const std::string err = testing::internal::GetCapturedStderr();
  EXPECT_EQ(status, 0);
  std::map<std::string, int> lines;
  std::istringstream in(out);
  for (std::string line; std::getline(in, line);) ++lines[line];
  const std::map<std::string, int> want = {
      {"[0] a0", 1}, {"[0] b0", 1}, {"[1] a1", 1}, {"[1] b1", 1}};
  EXPECT_EQ(lines, want);
  EXPECT_NE(err.find("[0] e0\n"), std::string::npos);
  EXPECT_NE(err.find("[1] e1\n"), std::string::npos);
}

TEST_F(Launch, PlainOutputIsTheRanksOwn) {
  LaunchOptions o = shell("echo hello", 2);
  o.output = LaunchOutput::kPlain;
  testing::internal::CaptureStdout();
  const int status = launch_local(o);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "hello\nhello\n");
  EXPECT_EQ(status, 0);
}

TEST_F(Launch, OneThatFailsEndsAllWithItsStatus) {
  EXPECT_EQ(launch_local(shell("[ $DTENSOR_RANK = 1 ] && exit 7; exec sleep 600", 3)), 7);
}

TEST_F(Launch, ASignalIs128PlusItsNumber) {
  EXPECT_EQ(launch_local(shell("[ $DTENSOR_RANK = 1 ] && kill -9 $$; exec sleep 600", 3)), 137);
}

TEST_F(Launch, OneThatIgnoresTheRequestToEndIsKilled) {
  LaunchOptions o = shell("trap '' TERM; echo $$ > " + directory +
                              "/$DTENSOR_RANK.pid; if [ $DTENSOR_RANK = 1 ]; then "
                              "while [ ! -s " +
                              directory +
                              "/0.pid ]; do sleep 0.01; done; exit 3; fi; "
                              "while :; do sleep 0.05; done",
                          2);
  o.grace = std::chrono::milliseconds(100);
  EXPECT_EQ(launch_local(o), 3);
  ASSERT_EQ(pids().size(), 2U);
  for (const pid_t pid : pids()) EXPECT_TRUE(kill(pid, 0) == -1 && errno == ESRCH) << pid;
}

TEST_F(Launch, WhatARankStartedEndsWithIt) {
  EXPECT_EQ(launch_local(shell("sleep 600 & echo $! > " + directory + "/$DTENSOR_RANK.pid", 2)), 0);
  ASSERT_EQ(pids().size(), 2U);
  for (const pid_t pid : pids()) {
    // Killed, and gone as soon as the kernel gets to it; it may still wait for init to take notice.
    const auto state_of = [pid] {
      std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
      std::string id;
      std::string name;
      std::string state = "gone";
      in >> id >> name >> state;
      return state;
    };
    const auto has_ended = [](const std::string& s) { return s == "gone" || s == "Z" || s == "X"; };
    const Deadline limit = Deadline::after(std::chrono::seconds(60));
    while (!has_ended(state_of()) && !limit.expired()) std::this_thread::yield();
    EXPECT_TRUE(has_ended(state_of())) << state_of();
  }
}

TEST_F(Launch, AProgramThatIsNotThereIs127) {
  LaunchOptions o;
  o.argv = {"/no/such/program"};
  EXPECT_EQ(launch_local(o), 127);
}

TEST_F(Launch, ATimeoutEndsTheRun) {
  LaunchOptions o = shell("exec sleep 600", 2);
  o.timeout = std::chrono::milliseconds(50);
  EXPECT_EQ(launch_local(o), 124);
}

TEST_F(Launch, NothingToRunIsRefused) {
  EXPECT_THROW(launch_local({}), ArgumentError);
  EXPECT_THROW(launch_local(shell("true", 0)), ArgumentError);
}

}  // namespace
}  // namespace dtensor::comm
