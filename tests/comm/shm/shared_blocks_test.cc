#include "dtensor/comm/shm/shared_blocks.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "dtensor/comm/shm/arena.h"

namespace dtensor::comm::shm {
namespace {

// Blocks are whole pages: who is told that there is room gets it.
TEST(SharedBlocks, HaveRoomForWhatTheyGive) {
  const auto arena = std::make_shared<Arena>(8 * kPageBytes, 0);
  SharedBlocks blocks(arena, 2 * kPageBytes + 100);
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, kPageBytes, kPageBytes + 1, 2 * kPageBytes,
                              2 * kPageBytes + 1, 2 * kPageBytes + 100, 3 * kPageBytes}) {
    EXPECT_EQ(blocks.has_room(bytes), bytes <= 2 * kPageBytes) << bytes;
    EXPECT_EQ(blocks.take(bytes) != nullptr, bytes <= 2 * kPageBytes) << bytes;
  }
  const std::shared_ptr<void> one = blocks.take(1);
  EXPECT_TRUE(blocks.has_room(kPageBytes));
  EXPECT_FALSE(blocks.has_room(kPageBytes + 1));
  const std::shared_ptr<void> two = blocks.take(kPageBytes);
  EXPECT_FALSE(blocks.has_room(1));
}

}  // namespace
}  // namespace dtensor::comm::shm
