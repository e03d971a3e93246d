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

}  // namespace
}  // namespace dtensor
