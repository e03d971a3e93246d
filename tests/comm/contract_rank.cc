// One rank of the contract of a Comm between processes (dtensor/tests/comm/process_worlds.h).

#include <gtest/gtest.h>

#include <cstdlib>

#include "dtensor/comm/backends.h"
#include "dtensor/comm/create.h"
#include "dtensor/tests/comm/contract.h"
#include "dtensor/tests/comm/process_worlds.h"

namespace dtensor::testing {
namespace {

std::vector<std::unique_ptr<comm::Comm>> own_rank(int size) {
  const ProcessWorld world = next_process_world(size);
  std::vector<std::unique_ptr<comm::Comm>> here;
  if (!world.has_part()) return here;
  const std::string url = std::getenv("DTENSOR_COMM");
  here.push_back(comm::create(url + (url.find('?') == std::string::npos ? "?" : "&") +
                              "rank=" + std::to_string(world.rank) +
                              "&size=" + std::to_string(size) + "&store=file:" + world.directory));
  return here;
}

INSTANTIATE_TEST_SUITE_P(Processes, CommContract,
                         ::testing::ValuesIn(worlds("processes", own_rank)), world_name);

}  // namespace
}  // namespace dtensor::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  dtensor::comm::register_all();
  return RUN_ALL_TESTS();
}
