// Which bytes are read, how many at once, and that runs lie where they should.

#include "dtensor/checkpoint/block_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/box_runs.h"
#include "dtensor/checkpoint/crc32c.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"

namespace dtensor::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TemporaryDirectory;

constexpr int64_t kMiB = 1 << 20;

class Blocks : public ::testing::Test {
 protected:
  Blocks() {
    std::vector<uint8_t> data(static_cast<size_t>(8 * kMiB + 5));
    std::mt19937 random(7);
    for (uint8_t& b : data) b = static_cast<uint8_t>(random());
    const std::vector<safetensors::Item> items = {
        {"w", DType::kUInt8, {static_cast<int64_t>(data.size())}, data.data()}};
    safetensors::write(dir_ / "f", items);
    bytes_ = testing::read_file(dir_ / "f");
    BlockCrcs crcs;
    crcs.update(std::as_bytes(std::span(bytes_)));
    crcs_ = crcs.crcs();
  }
  std::string copied(BlockReader& reader, int64_t begin, int64_t size) {
    std::string out(static_cast<size_t>(size), '?');
    reader.copy(begin, std::as_writable_bytes(std::span(out)));
    return out;
  }
  std::string want(int64_t begin, int64_t size) const {
    return bytes_.substr(static_cast<size_t>(begin), static_cast<size_t>(size));
  }

  TemporaryDirectory dir_;
  std::string bytes_;
  std::vector<uint32_t> crcs_;
};

// pytorch#149640: the needed bytes rounded to blocks, each once.
TEST_F(Blocks, OnlyNeededBlocksAreReadAndEachOnce) {
  const safetensors::File file(dir_ / "f");
  for (const int64_t buffer : {int64_t{1}, 2 * kMiB, 100 * kMiB}) {
    BlockReader reader(file, crcs_, buffer);
    const std::vector<std::pair<int64_t, int64_t>> stretches = {
        {10, 20}, {40, 1}, {2 * kMiB - 3, 6}, {5 * kMiB, kMiB}, {file.size_bytes() - 1, 1}};
    for (const auto& [begin, size] : stretches) reader.want(begin, size);
    for (const auto& [begin, size] : stretches)
      EXPECT_EQ(copied(reader, begin, size), want(begin, size));
    const int64_t last = file.size_bytes() % kMiB;
    EXPECT_EQ(reader.bytes_read(), 4 * kMiB + last);  // blocks 0, 1, 2, 5 and the last
  }
}

TEST_F(Blocks, WithoutCrcsAnyStretchComesBack) {
  const safetensors::File file(dir_ / "f");
  BlockReader reader(file, {}, 200'000);
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    const auto begin = static_cast<int64_t>(random() % bytes_.size());
    const auto size = std::min<int64_t>(random() % 300'000, file.size_bytes() - begin);
    reader.want(begin, size);
    EXPECT_EQ(copied(reader, begin, size), want(begin, size));
  }
}

TEST_F(Blocks, ADamagedBlockGivesNothingAway) {
  std::string bad = bytes_;
  bad[static_cast<size_t>(3 * kMiB)] = static_cast<char>(bad[static_cast<size_t>(3 * kMiB)] ^ 1);
  testing::write_file(dir_ / "f", bad);
  const safetensors::File file(dir_ / "f");
  BlockReader reader(file, crcs_, 8 * kMiB);
  reader.want(0, file.size_bytes());
  std::string out(100, '?');
  for (int i = 0; i < 2; ++i) {  // again, too
    try {
      reader.copy(3 * kMiB - 50, std::as_writable_bytes(std::span(out)));
      FAIL();
    } catch (const CheckpointError& e) {
      EXPECT_THAT(e.what(), AllOf(HasSubstr(dir_ / "f"), HasSubstr("block 3")));
    }
    EXPECT_EQ(out.substr(50), std::string(50, '?'));
  }
}

// Every run of every part of a box, against a plain loop over indices.
TEST(BoxRuns, CoverThePartInBothArrays) {
  const Box src{{1, 2, 3}, {4, 3, 5}};
  const Box dst{{0, 2, 1}, {6, 4, 9}};
  const std::vector<Box> parts = {src,
                                  {{1, 2, 3}, {4, 3, 2}},
                                  {{2, 3, 4}, {2, 1, 3}},
                                  {{1, 2, 3}, {0, 3, 5}},
                                  {{4, 2, 3}, {1, 3, 5}}};
  for (const Box& part : parts) {
    for (const Box& into : {dst, src, part}) {
      const bool fits = intersect(part, into) == part || part.empty();
      ASSERT_TRUE(fits);
      const auto at = [](const Box& box, int64_t i, int64_t j, int64_t k) {
        return ((i - box.offset[0]) * box.size[1] + j - box.offset[1]) * box.size[2] + k -
               box.offset[2];
      };
      std::vector<std::pair<int64_t, int64_t>> want;
      for (int64_t i = part.offset[0]; i < part.offset[0] + part.size[0]; ++i) {
        for (int64_t j = part.offset[1]; j < part.offset[1] + part.size[1]; ++j) {
          for (int64_t k = part.offset[2]; k < part.offset[2] + part.size[2]; ++k) {
            want.emplace_back(at(src, i, j, k), at(into, i, j, k));
          }
        }
      }
      std::vector<std::pair<int64_t, int64_t>> got;
      for_each_run(part, src, into, [&](const BoxRun& run) {
        for (int64_t i = 0; i < run.count; ++i) got.emplace_back(run.src + i, run.dst + i);
      });
      EXPECT_EQ(got, want);
    }
  }
  int scalars = 0;
  for_each_run({}, {}, {}, [&](const BoxRun& run) {
    EXPECT_EQ(run.count, 1);
    ++scalars;
  });
  EXPECT_EQ(scalars, 1);
}

TEST(BoxRuns, ContiguousPartsAreOneRun) {
  int runs = 0;
  const Box whole{{0, 0, 0}, {4, 3, 5}};
  for_each_run({{1, 0, 0}, {2, 3, 5}}, whole, whole, [&](const BoxRun& run) {
    ++runs;
    EXPECT_EQ(run.src, 15);
    EXPECT_EQ(run.count, 30);
  });
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace dtensor::checkpoint
