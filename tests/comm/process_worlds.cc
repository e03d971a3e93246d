#include "dtensor/tests/comm/process_worlds.h"

#include <chrono>
#include <cstdlib>

#include "dtensor/comm/launch.h"

namespace dtensor::testing {
namespace {

constexpr std::string_view kFile = "file:";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

void ProcessWorld::leave_together(comm::Store& store) const {
  const Deadline deadline = Deadline::after(std::chrono::seconds(120));
  store.set("left/" + std::to_string(rank), "1");
  for (int r = 0; r < size; ++r) store.get("left/" + std::to_string(r), deadline);
}

ProcessWorld next_process_world(int size) {
  static int made = 0;  // of this process, as of all others
  return {std::stoi(variable("DTENSOR_RANK")), size,
          variable("DTENSOR_STORE").substr(kFile.size()) + "/" + std::to_string(made++)};
}

int run_suite_in_processes(const std::string& program, int ranks, const std::string& comm) {
  comm::LaunchOptions o;
  o.argv = {"env"};
  // What the test itself was told of its result and of the part that it runs.
  for (const char* own : {"XML_OUTPUT_FILE", "TEST_PREMATURE_EXIT_FILE", "TESTBRIDGE_TEST_ONLY",
                          "TEST_TOTAL_SHARDS", "TEST_SHARD_INDEX", "TEST_SHARD_STATUS_FILE"}) {
    o.argv.insert(o.argv.end(), {"-u", own});
  }
  o.argv.push_back(variable("TEST_SRCDIR") + "/" + variable("TEST_WORKSPACE") + "/" + program);
  o.argv.push_back("--gtest_brief=1");
  o.size = ranks;
  o.comm = comm;
  o.timeout = std::chrono::minutes(14);
  return comm::launch_local(o);
}

}  // namespace dtensor::testing
