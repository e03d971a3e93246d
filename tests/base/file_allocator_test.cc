#include "dtensor/base/file_allocator.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/tests/support/forked.h"

namespace dtensor {
namespace {

TEST(FileAllocator, GivesMemoryThatKeepsItsValuesWhenItIsLetGo) {
  FileAllocator memory(::testing::TempDir());
  std::vector<unsigned char*> blocks;
  const std::vector<int64_t> sizes{0, 1, 4096, 4097, 1 << 20};
  for (const int64_t bytes : sizes) {
    blocks.push_back(static_cast<unsigned char*>(memory.allocate(bytes)));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks.back()) % 64, 0U);
    std::memset(blocks.back(), static_cast<int>(blocks.size()), static_cast<size_t>(bytes));
  }
  for (unsigned char* block : blocks) {
    memory.let_go(block);
    memory.will_need(block + 1);  // anywhere in the block
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (int64_t k = 0; k < sizes[i]; ++k) {
      ASSERT_EQ(blocks[i][k], static_cast<unsigned char>(i + 1)) << i << " " << k;
    }
  }
  EXPECT_EQ(memory.stats().live_bytes, 0 + 1 + 4096 + 4097 + (1 << 20));
  for (size_t i = 0; i < blocks.size(); ++i) memory.deallocate(blocks[i], sizes[i]);
  EXPECT_EQ(memory.stats().live_bytes, 0);
  EXPECT_EQ(memory.stats().peak_bytes, 0 + 1 + 4096 + 4097 + (1 << 20));
  memory.reset_peak();
  EXPECT_EQ(memory.stats().peak_bytes, 0);
}

TEST(FileAllocator, GivesNothingToAForkedProcess) {
  FileAllocator memory(::testing::TempDir());
  auto* block = static_cast<char*>(memory.allocate(4096));
  block[7] = 3;
  const int status = testing::status_of_fork([&] {
    if (block[7] != 3) return 1;
    memory.deallocate(block, 4096);
    try {
      memory.allocate(4096);
    } catch (const Error&) {
      return 0;
    }
    return 2;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(block[7], 3);
  memory.deallocate(block, 4096);
}

TEST(FileAllocator, HintsForOtherMemoryDoNothing) {
  FileAllocator memory(::testing::TempDir());
  std::vector<int> other(100000, 7);
  memory.let_go(other.data());
  memory.let_go(nullptr);
  memory.will_need(other.data());
  void* block = memory.allocate(10);
  memory.let_go(other.data());
  EXPECT_EQ(other, std::vector<int>(100000, 7));
  memory.deallocate(block, 10);
}

TEST(FileAllocator, NamesWhatItCannotHave) {
  EXPECT_THROW(FileAllocator("/nowhere/at/all"), Error);
  FileAllocator memory(::testing::TempDir());
  try {
    memory.allocate(int64_t{1} << 60);
    FAIL() << "an exbibyte was given";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("1152921504606846976 bytes"), std::string::npos)
        << e.what();
  }
  EXPECT_THROW(memory.allocate(-1), ArgumentError);
}

}  // namespace
}  // namespace dtensor
