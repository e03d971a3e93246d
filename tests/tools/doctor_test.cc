// `dtensor doctor`, by the program itself.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "dtensor/comm/socket.h"
#include "dtensor/tests/support/subprocess.h"
#include "dtensor/tools/doctor_checks.h"

namespace dtensor::testing {
namespace {

using Json = nlohmann::json;
namespace sockets = comm::internal;

ProcessResult doctor(std::vector<std::string> arguments, const ProcessOptions& options = {}) {
  std::vector<std::string> argv = {std::string(std::getenv("TEST_SRCDIR")) + "/" +
                                       std::getenv("TEST_WORKSPACE") + "/tools/dtensor",
                                   "doctor"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return run_process(argv, options);
}

Json find(const Json& rows, const std::string& kind, const std::string& begin) {
  for (const Json& row : rows) {
    if (row.contains(kind) && row[kind].get<std::string>().starts_with(begin)) return row;
  }
  return {};
}

TEST(Doctor, SaysWhatWorksAndWhatDoesNotWithTheFix) {
  const ProcessResult r = doctor({"--json"});
  const Json rows = Json::parse(r.out);
  for (const Json& row : rows) {
    ASSERT_TRUE(row.contains("works") && row.contains("why") && row.contains("fix")) << row;
    EXPECT_NE(row["why"], "") << row;
    EXPECT_EQ(row["works"].get<bool>(), row["fix"] == "") << row;
  }
  for (const char* backend : {"local", "gloo"}) {
    EXPECT_EQ(find(rows, "backend", backend)["works"], true) << r.out;
  }
  for (const char* backend : {"ucx", "nccl"})
    EXPECT_FALSE(find(rows, "backend", backend).is_null());
  EXPECT_EQ(find(rows, "device", "cpu")["works"], true);
  EXPECT_FALSE(find(rows, "device", "cuda").is_null());
  EXPECT_EQ(find(rows, "memory", "shared")["works"], true);
  EXPECT_EQ(find(rows, "address", "127.0.0.1 (lo)")["works"], true) << r.out;
  EXPECT_EQ(r.status, 0) << r.out;
}

// A driver's own files are there also where a process sees no GPU.
TEST(Doctor, CountsGpusAndNotDrivers) {
  const std::string dev = std::string(::testing::TempDir()) + "/dev";
  std::filesystem::remove_all(dev);
  EXPECT_EQ(tools::count_gpus(dev), 0);
  std::filesystem::create_directories(dev);
  for (const char* name : {"nvidiactl", "nvidia-uvm", "nvidia", "nvme0", "nvidia-caps"}) {
    std::ofstream(dev + "/" + name) << "";
  }
  EXPECT_EQ(tools::count_gpus(dev), 0);
  for (const char* name : {"nvidia0", "nvidia12"}) std::ofstream(dev + "/" + name) << "";
  EXPECT_EQ(tools::count_gpus(dev), 2);
  for (const auto& [visible, count] : {std::pair{"0", 1},
                                       {"1,0", 2},
                                       {"0, 1", 2},
                                       {" 1 ,0 ", 2},
                                       {"1gpu,0th", 2},
                                       {"99999999999999999999", 0},
                                       {"0,,1", 1},
                                       {"GPU-8932f937", 1},
                                       {"", 0},
                                       {"-1", 0},
                                       {"NoDevFiles", 0},
                                       {"0,-1,1", 1},
                                       {"1,7,0", 1},
                                       {"0,x", 1}}) {
    setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    EXPECT_EQ(tools::count_gpus(dev), count) << visible;
  }
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(Doctor, PeersAreReachedOrNot) {
  const sockets::Fd listener = sockets::listen_on("127.0.0.1", 0);
  const std::string open = sockets::to_string(sockets::local_address(listener));
  std::string closed;
  {
    const sockets::Fd gone = sockets::listen_on("127.0.0.1", 0);
    closed = sockets::to_string(sockets::local_address(gone));
  }
  ProcessResult r = doctor({"--json", "--peers", open});
  EXPECT_EQ(r.status, 0) << r.out;
  EXPECT_EQ(find(Json::parse(r.out), "peer", open)["works"], true);
  r = doctor({"--peers=" + open + "," + closed});
  EXPECT_EQ(r.status, 1) << r.out;
  EXPECT_NE(r.out.find("FAILS  peer     " + closed), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("nobody listens there"), std::string::npos) << r.out;
}

// A setting of this shell that no rank can use: it is found here, and not by the job.
TEST(Doctor, ABackendThatCannotStartIsAFindingWithItsReason) {
  const ProcessResult r = doctor({"--json"}, {.environment = {{"DTENSOR_INTERFACE", "nosuch0"}}});
  EXPECT_EQ(r.status, 1);
  const Json gloo = find(Json::parse(r.out), "backend", "gloo");
  EXPECT_EQ(gloo["works"], false);
  EXPECT_NE(gloo["why"].get<std::string>().find("nosuch0"), std::string::npos) << gloo;
}

TEST(Doctor, WrongUsageIs2) {
  EXPECT_EQ(doctor({"--peers", "nowhere"}).status, 2);
  EXPECT_EQ(doctor({"--peers"}).status, 2);
  EXPECT_EQ(doctor({"--nope"}).status, 2);
  EXPECT_EQ(doctor({"--help"}).status, 0);
}

}  // namespace
}  // namespace dtensor::testing
