#include "dtensor/base/allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/base/block_source.h"
#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/tests/support/forked.h"
#include "dtensor/tests/support/sanitized.h"

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
  if (testing::kSanitized && allocator->stats().held_bytes == 0) {
    GTEST_SKIP() << "nothing is kept under address sanitizer";
  }
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

std::string error_of(Allocator& allocator, int64_t bytes) {
  try {
    allocator.allocate(bytes);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(HeapAllocator, OutOfMemoryNamesRankRequestLivePeakAndHolders) {
  constexpr int64_t kBlock = 1 << 20;
  const auto allocator = make_heap_allocator({.most_bytes = 8 * kBlock});
  const auto hold = [&](std::string_view op, int64_t bytes) {
    const ScopedSlot<MemoryUser> user({.op = op, .rank = 3});
    return allocator->allocate(bytes);
  };
  void* a = hold("linear", 2 * kBlock);
  void* b = hold("linear", 2 * kBlock);
  void* c = hold("softmax", 3 * kBlock);
  void* d = hold("an op with a name that is much too long", kBlock);
  allocator->deallocate(d, kBlock);
  const ScopedSlot<MemoryUser> user({.op = "matmul", .rank = 3});
  EXPECT_EQ(error_of(*allocator, 2 * kBlock),
            "out of memory on rank 3: matmul asked for 2097152 bytes with 7340032 live (peak "
            "8388608), of at most 8388608; largest holders: linear 4194304 bytes in 2 blocks, "
            "softmax 3145728 bytes in 1 block");
  EXPECT_EQ(allocator->stats().live_bytes, 7 * kBlock);
  void* e = allocator->allocate(kBlock);
  allocator->deallocate(e, kBlock);
  for (void* block : {a, b}) allocator->deallocate(block, 2 * kBlock);
  allocator->deallocate(c, 3 * kBlock);
}

TEST(HeapAllocator, WhatTheMachineCannotGiveIsOutOfMemory) {
  if (testing::kSanitized) GTEST_SKIP() << "a sanitizer ends the program that asks for so much";
  const auto allocator = make_heap_allocator();
  EXPECT_THAT(error_of(*allocator, int64_t{1} << 60),
              ::testing::HasSubstr("asked for 1152921504606846976 bytes with 0 live"));
}

// A source with room for so many bytes, that knows which blocks are out.
class CountedSource : public BlockSource {
 public:
  explicit CountedSource(int64_t room) : room_(room) {}
  bool has_room(int64_t bytes) const noexcept override { return bytes <= room_; }
  std::shared_ptr<void> take(int64_t bytes) noexcept override {
    if (refuses) return nullptr;
    room_ -= bytes;
    void* data = std::aligned_alloc(64, static_cast<size_t>(bytes));
    out->push_back(data);
    return {data, [out = out](void* p) {
              std::erase(*out, p);
              std::free(p);
            }};
  }
  bool gave(const void* data) const { return std::ranges::find(*out, data) != out->end(); }

  std::shared_ptr<std::vector<void*>> out = std::make_shared<std::vector<void*>>();
  bool refuses = false;

 private:
  int64_t room_;
};

constexpr int64_t kBlock = 1 << 20;

TEST(HeapAllocator, TakesLargeBlocksFromTheSourceWhereItHasRoom) {
  const auto source = std::make_shared<CountedSource>(2 * kBlock);
  const ScopedSlot<LargeBlocks> scope({source});
  const auto allocator = make_heap_allocator();
  void* small = allocator->allocate(100'000);
  EXPECT_FALSE(source->gave(small));
  void* a = allocator->allocate(kBlock);
  void* b = allocator->allocate(kBlock);
  void* beyond = allocator->allocate(kBlock);
  EXPECT_TRUE(source->gave(a));
  EXPECT_TRUE(source->gave(b));
  EXPECT_FALSE(source->gave(beyond));
  EXPECT_EQ(allocator->stats().live_bytes, 3 * kBlock + 100'000);
  // What is kept comes back, of the source first; and where it is full, what else there is.
  allocator->deallocate(a, kBlock);
  allocator->deallocate(beyond, kBlock);
  if (allocator->stats().held_bytes == 3 * kBlock + 100'000) {
    EXPECT_EQ(allocator->allocate(kBlock), a);
    EXPECT_EQ(allocator->allocate(kBlock), beyond);
    allocator->deallocate(a, kBlock);
    allocator->deallocate(beyond, kBlock);
  }
  allocator->deallocate(b, kBlock);
  allocator->deallocate(small, 100'000);
  allocator->reset_peak();
  EXPECT_TRUE(source->out->empty());
}

TEST(HeapAllocator, TakesFromTheHeapWhatASourceRefuses) {
  const auto source = std::make_shared<CountedSource>(2 * kBlock);
  source->refuses = true;
  const ScopedSlot<LargeBlocks> scope({source});
  const auto allocator = make_heap_allocator();
  void* a = allocator->allocate(kBlock);
  ASSERT_NE(a, nullptr);
  EXPECT_TRUE(source->out->empty());
  allocator->deallocate(a, kBlock);
}

TEST(HeapAllocator, TakesWhatIsKeptWhereASourceRefuses) {
  const auto source = std::make_shared<CountedSource>(8 * kBlock);
  const auto allocator = make_heap_allocator();
  void* heap = allocator->allocate(kBlock);
  void* other = allocator->allocate(kBlock);
  allocator->deallocate(heap, kBlock);
  if (testing::kSanitized && allocator->stats().held_bytes == kBlock) {
    allocator->deallocate(other, kBlock);
    GTEST_SKIP() << "nothing is kept under address sanitizer";
  }
  source->refuses = true;
  const ScopedSlot<LargeBlocks> scope({source});
  EXPECT_EQ(allocator->allocate(kBlock), heap);
  EXPECT_EQ(allocator->stats().held_bytes, 2 * kBlock);
  allocator->deallocate(heap, kBlock);
  allocator->deallocate(other, kBlock);
}

TEST(HeapAllocator, LetsGoOfASourceThatHasEnded) {
  auto source = std::make_shared<CountedSource>(8 * kBlock);
  const auto out = source->out;
  const ScopedSlot<LargeBlocks> scope({source});
  const auto allocator = make_heap_allocator();
  auto* used = static_cast<char*>(allocator->allocate(kBlock));
  void* kept = allocator->allocate(2 * kBlock);
  used[kBlock - 1] = 7;
  allocator->deallocate(kept, 2 * kBlock);
  source.reset();
  // The next one who asks gets memory of the heap, and what was kept is gone.
  void* other = allocator->allocate(2 * kBlock);
  EXPECT_EQ(*out, std::vector<void*>{used});
  EXPECT_EQ(allocator->stats().held_bytes, 3 * kBlock);
  EXPECT_EQ(used[kBlock - 1], 7);
  // What is freed now is not kept.
  allocator->deallocate(used, kBlock);
  EXPECT_TRUE(out->empty());
  allocator->deallocate(other, 2 * kBlock);
}

// Memory of a source is shared with the process that forked: what is kept there, or freed, is taken
// there again.
TEST(HeapAllocator, AForkedProcessTakesNoBlockOfASourceAgain) {
  const auto source = std::make_shared<CountedSource>(2 * kBlock);
  const ScopedSlot<LargeBlocks> scope({source});
  const auto allocator = make_heap_allocator();
  void* used = allocator->allocate(kBlock);
  void* kept = allocator->allocate(kBlock);
  allocator->deallocate(kept, kBlock);
  const int status = testing::status_of_fork([&] {
    void* first = allocator->allocate(kBlock);  // the source has no room
    allocator->deallocate(used, kBlock);
    void* second = allocator->allocate(kBlock);
    return (source->gave(first) ? 1 : 0) + (source->gave(second) ? 2 : 0);
  });
  EXPECT_EQ(status, 0);
  if (!testing::kSanitized) {
    EXPECT_EQ(allocator->allocate(kBlock), kept);
    allocator->deallocate(kept, kBlock);
  }
  allocator->deallocate(used, kBlock);
}

}  // namespace
}  // namespace dtensor
