// Strangers find every port of a world while it forms and while it computes, and send garbage, half
// a greeting, or nothing. Nobody notices. With a secret, a rank that has another one stays out.

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "dtensor/base/deadline.h"
#include "dtensor/base/error.h"
#include "dtensor/comm/socket.h"
#include "dtensor/tests/comm/failures/scenario.h"
#include "dtensor/tests/support/subprocess.h"

namespace dtensor::testing {
namespace {

namespace fs = std::filesystem;
namespace sockets = comm::internal;

constexpr int kSize = 3;
const std::string kSecret = "what only the ranks of this test know";

// The ports on which a process listens: its sockets' inodes, looked up in the kernel's table.
std::set<int> ports_of(int pid) {
  std::set<std::string> inodes;
  std::error_code ignored;
  for (const auto& fd : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd", ignored)) {
    const std::string target = fs::read_symlink(fd.path(), ignored).string();
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  std::set<int> ports;
  std::ifstream table("/proc/" + std::to_string(pid) + "/net/tcp");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream in(line);
    std::array<std::string, 10> field;
    for (std::string& f : field) in >> f;
    if (field[3] == "0A" && inodes.count(field[9]) != 0) {
      ports.insert(std::stoi(field[1].substr(field[1].find(':') + 1), nullptr, 16));
    }
  }
  return ports;
}

// Connections that stay open to the end of the test.
class Strangers {
 public:
  void visit(int port) {
    std::string garbage(3000, '\0');
    for (size_t i = 0; i < garbage.size(); ++i) garbage[i] = static_cast<char>(i * 131 + 7);
    for (const std::string& text :
         {garbage, std::string("GET / HTTP/1.1\r\n\r\n"), std::string("DTAUTH01"),
          std::string("DTCTRL01half"), std::string("DTS1"), std::string()}) {
      try {
        fds_.push_back(
            sockets::connect_to({"127.0.0.1", port}, Deadline::after(std::chrono::seconds(5))));
        sockets::write_all(fds_.back(), text, Deadline::after(std::chrono::seconds(5)));
      } catch (const Error&) {
        // closed meanwhile, as it should be
      }
    }
  }
  size_t count() const { return fds_.size(); }

 private:
  std::vector<sockets::Fd> fds_;
};

// A seed whose world has three ranks and no fault but lateness.
int quiet_seed() {
  for (int seed = 0;; ++seed) {
    const Scenario s = scenario_of(seed);
    if (s.fault == Fault::kSlow && s.size == kSize) return seed;
  }
}

class StrangersTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    directory = ::testing::TempDir() + "/strangers." + (GetParam() ? "secret" : "open");
    fs::remove_all(directory);
    fs::create_directories(directory);
    const sockets::Fd free = sockets::listen_on("127.0.0.1", 0);
    store = sockets::local_address(free);
  }

  std::unique_ptr<Subprocess> start(int rank, const std::string& secret,
                                    const std::string& options = "") const {
    ProcessOptions o;
    o.environment = {{"DTENSOR_RANK", std::to_string(rank)},
                     {"DTENSOR_WORLD_SIZE", std::to_string(kSize)},
                     {"DTENSOR_STORE", sockets::to_string(store)},
                     {"DTENSOR_COMM", "gloo://?liveness=1" + options}};
    if (!secret.empty()) o.environment.emplace_back("DTENSOR_SECRET", secret);
    o.bound = std::chrono::seconds(60);
    const std::string program = std::string(std::getenv("TEST_SRCDIR")) + "/" +
                                std::getenv("TEST_WORKSPACE") + "/tests/comm/failures/faulty_rank";
    return std::make_unique<Subprocess>(
        std::vector<std::string>{program, "seed", std::to_string(quiet_seed()), directory}, o);
  }

  std::string secret() const { return GetParam() ? kSecret : ""; }

  std::string directory;
  sockets::HostPort store;
};

TEST_P(StrangersTest, DisturbNobody) {
  Strangers strangers;
  std::vector<std::unique_ptr<Subprocess>> ranks;
  ranks.push_back(start(0, secret()));
  strangers.visit(store.port);  // waits until rank 0 serves
  ranks.push_back(start(1, secret()));
  for (const int port : ports_of(ranks[1]->pid())) strangers.visit(port);
  ranks.push_back(start(2, secret()));
  for (const auto& r : ranks) {
    ASSERT_TRUE(r->wait_for_output("joined\n")) << r->wait().out;
  }
  const size_t before = strangers.count();
  for (const auto& r : ranks) {
    for (const int port : ports_of(r->pid())) strangers.visit(port);
  }
  EXPECT_GT(strangers.count(), before) << "the store, at least, listens";
  std::ofstream(directory + "/go") << "1";
  for (const auto& r : ranks) {
    const ProcessResult result = r->wait();
    EXPECT_EQ(result.status, 0) << result.out << result.err;
    EXPECT_NE(result.out.find("all well\n"), std::string::npos) << result.out << result.err;
    EXPECT_EQ(result.err, "") << "silent by default";
    EXPECT_EQ((result.out + result.err).find(kSecret), std::string::npos);
  }
}

TEST_P(StrangersTest, ARankWithAnotherSecretStaysOut) {
  std::vector<std::unique_ptr<Subprocess>> ranks;
  for (int r = 0; r < kSize; ++r) {
    ranks.push_back(start(r, r == 2 ? "a secret that nobody else has" : secret(), "&timeout=5"));
  }
  for (int r = 0; r < kSize; ++r) {
    const ProcessResult result = ranks[static_cast<size_t>(r)]->wait();
    EXPECT_EQ(result.status, 4) << result.out << result.err;
    const char* part = r == 2 ? "DTENSOR_SECRET" : "rank 2 did not come";
    EXPECT_NE(result.out.find(part), std::string::npos) << "rank " << r << ": " << result.out;
  }
}

INSTANTIATE_TEST_SUITE_P(Secret, StrangersTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "with" : "without"; });

}  // namespace
}  // namespace dtensor::testing
