#include "dtensor/base/allocator.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "dtensor/base/error.h"

namespace dtensor {
namespace {

TEST(HeapAllocator, AlignsAndCounts) {
  const auto allocator = make_heap_allocator();
  void* a = allocator->allocate(1000);
  void* b = allocator->allocate(0);
  EXPECT_NE(a, nullptr);
  EXPECT_NE(b, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 64, 0U);
  EXPECT_EQ(allocator->stats().live_bytes, 1000);
  allocator->deallocate(a, 1000);
  allocator->deallocate(b, 0);
  EXPECT_EQ(allocator->stats().live_bytes, 0);
  EXPECT_EQ(allocator->stats().peak_bytes, 1000);
  EXPECT_EQ(allocator->stats().allocations, 2);
  allocator->reset_peak();
  EXPECT_EQ(allocator->stats().peak_bytes, 0);
}

TEST(HeapAllocator, KeepsFreedBlocksWithinThePeakOfWhatWasLive) {
  const auto allocator = make_heap_allocator();
  constexpr int64_t kBlock = 1 << 20;
  void* a = allocator->allocate(kBlock);
  void* b = allocator->allocate(2 * kBlock);
  allocator->deallocate(a, kBlock);
  allocator->deallocate(b, 2 * kBlock);
  if (allocator->stats().held_bytes == 0) GTEST_SKIP() << "nothing is kept under a sanitizer";
  EXPECT_EQ(allocator->stats().live_bytes, 0);
  EXPECT_EQ(allocator->stats().held_bytes, 3 * kBlock);
  // The same size gets its block again.
  EXPECT_EQ(allocator->allocate(kBlock), a);
  EXPECT_EQ(allocator->stats().held_bytes, 3 * kBlock);
  // Another size must not come on top of the peak: b makes room.
  void* c = allocator->allocate(kBlock + 64);
  EXPECT_LE(allocator->stats().held_bytes, 3 * kBlock);
  allocator->deallocate(a, kBlock);
  allocator->deallocate(c, kBlock + 64);
  void* small = allocator->allocate(1000);
  allocator->deallocate(small, 1000);
  EXPECT_EQ(allocator->stats().held_bytes, 2 * kBlock + 64);
  allocator->reset_peak();
  EXPECT_EQ(allocator->stats().held_bytes, 0);
}

}  // namespace
}  // namespace dtensor
