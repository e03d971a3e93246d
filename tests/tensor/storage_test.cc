#include "dtensor/tensor/storage.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "dtensor/base/allocator.h"
#include "dtensor/base/context.h"
#include "dtensor/base/error.h"

namespace dtensor {
namespace {

AllocatorStats stats() { return Context::current().slot<CurrentAllocator>().allocator->stats(); }

TEST(Storage, TakesItsMemoryFromTheContextAndGivesItBack) {
  Context context;
  const ContextScope scope(context);
  {
    const Storage s(1000);
    EXPECT_EQ(s.size_bytes(), 1000);
    EXPECT_EQ(stats().live_bytes, 1000);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(s.data()) % 64, 0U);
  }
  EXPECT_EQ(stats().live_bytes, 0);
}

TEST(Storage, IsEmptiedAndRefilledInPlace) {
  Context context;
  const ContextScope scope(context);
  Storage s(256);
  s.bump_version();
  s.release();
  EXPECT_TRUE(s.is_empty());
  EXPECT_EQ(s.data(), nullptr);
  EXPECT_EQ(s.size_bytes(), 256);
  EXPECT_EQ(stats().live_bytes, 0);
  s.release();  // nothing to give back
  s.refill();
  EXPECT_FALSE(s.is_empty());
  EXPECT_EQ(stats().live_bytes, 256);
  EXPECT_EQ(s.version(), 1U);
  void* const data = s.data();
  s.refill();  // has memory
  EXPECT_EQ(s.data(), data);
}

TEST(Storage, KeepsTheAllocatorThatItCameFrom) {
  Context context;
  const ContextScope scope(context);
  const auto first = Context::current().slot<CurrentAllocator>().allocator;
  Storage s(64);
  Context::current().slot<CurrentAllocator>().allocator = make_heap_allocator();
  s.release();
  s.refill();
  EXPECT_EQ(first->stats().live_bytes, 64);
  EXPECT_EQ(stats().live_bytes, 0);
}

TEST(Storage, KeepsTheOwnerOfForeignMemoryUntilItIsReleased) {
  auto owner = std::make_shared<std::vector<float>>(4, 1.0F);
  const std::weak_ptr<std::vector<float>> watch = owner;
  void* const data = owner->data();
  Storage s(data, 16, std::move(owner));
  EXPECT_EQ(s.data(), data);
  EXPECT_FALSE(watch.expired());
  s.release();
  EXPECT_TRUE(watch.expired());
  s.refill();  // memory of its own
  EXPECT_NE(s.data(), nullptr);
}

TEST(Storage, RefusesANegativeSize) {
  EXPECT_THROW(Storage(-1), ArgumentError);
  EXPECT_THROW(Storage(nullptr, 8, nullptr), ArgumentError);
}

}  // namespace
}  // namespace dtensor
