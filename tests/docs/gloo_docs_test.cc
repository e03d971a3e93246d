// The C++ blocks of docs/gloo.md.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/comm/backends.h"
#include "dtensor/comm/create.h"
#include "dtensor/comm/launch.h"

namespace dtensor::testing {
namespace {

std::unique_ptr<comm::Comm> start() {
  comm::register_all();             // every backend; or comm::gloo::register_backend() alone
  return comm::from_environment();  // a world of one where no launcher started this process
}

int run_here(std::vector<std::string> argv, int size) {
  return comm::launch_local({.argv = std::move(argv), .size = size});
}

TEST(GlooDocs, TheBlocksDoWhatThePageSays) {
  const auto world = start();
  EXPECT_EQ(world->size(), 1);
  EXPECT_EQ(run_here({"sh", "-c", "exit $DTENSOR_WORLD_SIZE"}, 3), 3);
}

}  // namespace
}  // namespace dtensor::testing
