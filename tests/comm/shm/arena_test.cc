#include "dtensor/comm/shm/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace dtensor::comm::shm {
namespace {

constexpr int64_t kBytes = 64 * kPageBytes;

bool is_zero(const void* data, int64_t bytes) {
  const auto* p = static_cast<const char*>(data);
  return std::all_of(p, p + bytes, [](char c) { return c == 0; });
}

TEST(Arena, GivesZeroedPagesThatOthersSee) {
  Arena arena(kBytes);
  auto* data = static_cast<char*>(arena.allocate(3 * kPageBytes - 5, Arena::Pages::kNow));
  ASSERT_NE(data, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % kPageBytes, 0U);
  EXPECT_TRUE(is_zero(data, 3 * kPageBytes));
  const Mapping other(arena.fd(), arena.size_bytes(), Mapping::Access::kRead);
  data[4097] = 7;
  EXPECT_EQ(static_cast<char>(other.data()[arena.offset_of(data, 1) + 4097]), 7);
}

TEST(Arena, GivesBackWhatIsFreedAsZeros) {
  Arena arena(kBytes);
  std::vector<void*> blocks;
  for (int k = 0; k < 4; ++k) {
    blocks.push_back(arena.allocate(kBytes / 4, Arena::Pages::kNow));
    std::fill_n(static_cast<char*>(blocks.back()), kBytes / 4, static_cast<char>(k + 1));
  }
  EXPECT_EQ(arena.allocate(1, Arena::Pages::kNow), nullptr);
  // In an order that joins blocks with both neighbours.
  for (const size_t k : {0, 2, 1, 3}) arena.deallocate(blocks[k], kBytes / 4);
  void* all = arena.allocate(kBytes, Arena::Pages::kNow);
  ASSERT_EQ(all, arena.base());
  EXPECT_TRUE(is_zero(all, kBytes));
}

TEST(Arena, HasNoRoomForMoreThanItsSize) {
  Arena arena(kBytes);
  EXPECT_EQ(arena.allocate(kBytes + 1, Arena::Pages::kOnUse), nullptr);
  EXPECT_EQ(arena.allocate(-1, Arena::Pages::kOnUse), nullptr);
  EXPECT_NE(arena.allocate(0, Arena::Pages::kOnUse), nullptr);
}

TEST(Arena, KnowsWhatLiesInIt) {
  Arena arena(kBytes);
  const std::byte* base = arena.base();
  EXPECT_EQ(arena.offset_of(base, kBytes), 0);
  EXPECT_EQ(arena.offset_of(base + 100, kBytes - 100), 100);
  EXPECT_EQ(arena.offset_of(base + 100, kBytes - 99), -1);
  int other = 0;
  EXPECT_EQ(arena.offset_of(&other, 4), -1);
}

}  // namespace
}  // namespace dtensor::comm::shm
