// The C++ blocks of docs/ucx.md.

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "dtensor/comm/backends.h"
#include "dtensor/comm/create.h"

namespace dtensor::testing {
namespace {

std::unique_ptr<comm::Comm> start_over_ucx(int rank, int size, const std::string& store) {
  comm::register_all();  // every backend; or comm::ucx::register_backend() alone
  return comm::create("ucx://?rank=" + std::to_string(rank) + "&size=" + std::to_string(size) +
                      "&store=file:" + store);
}

TEST(UcxDocs, TheBlocksDoWhatThePageSays) {
  const auto world = start_over_ucx(0, 1, ::testing::TempDir() + "/ucx_docs_store");
  EXPECT_EQ(world->size(), 1);
  EXPECT_EQ(world->capabilities().backend, "ucx");
}

}  // namespace
}  // namespace dtensor::testing
