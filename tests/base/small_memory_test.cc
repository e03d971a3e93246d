#include "dtensor/base/small_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace dtensor {
namespace {

TEST(SmallMemory, GivesAlignedBlocksThatDoNotOverlap) {
  struct Block {
    unsigned char* data;
    size_t bytes;
  };
  for (int round = 0; round < 3; ++round) {
    std::vector<Block> blocks;
    for (size_t bytes = 0; bytes < 5000; bytes += 37) {
      auto* data = static_cast<unsigned char*>(small_allocate(bytes));
      ASSERT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0U);
      std::memset(data, static_cast<int>(bytes % 251), bytes);
      blocks.push_back({data, bytes});
    }
    for (const Block& block : blocks) {
      for (size_t i = 0; i < block.bytes; ++i) ASSERT_EQ(block.data[i], block.bytes % 251);
      small_deallocate(block.data, block.bytes);
    }
  }
}

// A block may end on another thread, also on one that then ends.
TEST(SmallMemory, TakesBackBlocksOfOtherThreads) {
  for (int round = 0; round < 4; ++round) {
    std::vector<void*> blocks(100);
    std::thread maker([&] {
      for (void*& block : blocks) block = small_allocate(200);
    });
    maker.join();
    std::thread ender([&] {
      for (void* block : blocks) small_deallocate(block, 200);
    });
    ender.join();
  }
}

// What thread-local objects free after the lists are gone.
TEST(SmallMemory, WorksWhileAThreadEnds) {
  std::thread thread([] {
    static thread_local std::shared_ptr<int> late;  // made first: destroyed last
    late = std::make_shared<int>(0);
    late = make_small<int>(5);
    small_deallocate(small_allocate(64), 64);
  });
  thread.join();
}

}  // namespace
}  // namespace dtensor
