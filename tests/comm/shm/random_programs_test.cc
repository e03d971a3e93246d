// Random programs over threads that share memory as processes of a host do, and over `local`.

#include "dtensor/tests/comm/random_programs.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "dtensor/comm/local/local.h"
#include "dtensor/tests/comm/gloo_world.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::testing {
namespace {

// By hand: DTENSOR_PROGRAMS=2000.
int programs() {
  const char* text = std::getenv("DTENSOR_PROGRAMS");
  return text == nullptr ? 30 : std::atoi(text);
}

class RandomPrograms : public ::testing::TestWithParam<int> {
 protected:
  void run(std::vector<std::unique_ptr<comm::Comm>> world) {
    run_ranks(std::move(world),
              [](comm::Comm& comm) {
                for (int k = 0; k < programs(); ++k) {
                  run_random_program(comm, static_cast<uint64_t>(1000 * comm.size() + k));
                }
                comm.shutdown();
              },
              {.limit = std::chrono::seconds(3000)});
  }
};

TEST_P(RandomPrograms, GiveWhatASerialModelGivesInSharedMemory) {
  run(gloo_world(GetParam(), {{"shm", "1073741824"}}));
}

TEST_P(RandomPrograms, GiveWhatASerialModelGivesOverLocal) {
  run(comm::local::make_world(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Sizes, RandomPrograms, ::testing::Values(1, 2, 3, 4, 7));

}  // namespace
}  // namespace dtensor::testing
