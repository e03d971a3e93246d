// Which bytes are read, how many at once, and where they go.

#include "dtensor/checkpoint/fill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "dtensor/base/allocator.h"
#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/checkpoint/crc32c.h"
#include "dtensor/checkpoint/safetensors.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"

namespace dtensor::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TemporaryDirectory;

constexpr int64_t kMiB = 1 << 20;

// A file of 8 MiB and a bit that has one tensor of bytes; begin_ is where that begins.
class Fill : public ::testing::Test {
 protected:
  Fill() {
    std::vector<uint8_t> data(static_cast<size_t>(8 * kMiB + 5));
    std::mt19937 random(7);
    for (uint8_t& b : data) b = static_cast<uint8_t>(random());
    const std::vector<safetensors::Item> items = {
        {"w", DType::kUInt8, {static_cast<int64_t>(data.size())}, data.data()}};
    safetensors::write(path_, items);
    bytes_ = testing::read_file(path_);
    BlockCrcs crcs;
    crcs.update(std::as_bytes(std::span(bytes_)));
    crcs_ = crcs.crcs();
    begin_ = static_cast<int64_t>(bytes_.size() - data.size());
  }
  FillSource source(bool checked = true) const {
    FillSource s{path_, static_cast<int64_t>(bytes_.size())};
    if (checked) s.block_crcs = crcs_;
    return s;
  }
  int64_t size() const { return static_cast<int64_t>(bytes_.size()); }
  // Asks for a stretch of the file as a tensor of its own.
  void want(int64_t begin, int64_t size) {
    const Box whole{{0}, {static_cast<int64_t>(bytes_.size()) - begin_}};
    const Box part{{begin - begin_}, {size}};
    pieces_.push_back({0, static_cast<int>(targets_.size()), begin_, whole, part});
    targets_.push_back({"t" + std::to_string(targets_.size()), Tensor::zeros({size}, DType::kUInt8),
                        part, DType::kUInt8});
  }
  void expect_right() const {
    for (const FillTarget& t : targets_) {
      const auto got = t.local.to_vector<uint8_t>();
      const auto at = static_cast<size_t>(begin_ + t.box.offset[0]);
      EXPECT_TRUE(std::equal(got.begin(), got.end(), bytes_.begin() + static_cast<int64_t>(at),
                             [](uint8_t a, char b) { return a == static_cast<uint8_t>(b); }))
          << t.name;
    }
  }

  TemporaryDirectory dir_;
  std::string path_ = dir_ / "f";
  std::string bytes_;
  std::vector<uint32_t> crcs_;
  int64_t begin_ = 0;
  std::vector<FillTarget> targets_;
  std::vector<FillPiece> pieces_;
};

// pytorch#149640: the needed bytes rounded to blocks, each once.
TEST_F(Fill, OnlyNeededBlocksAreReadAndEachOnce) {
  for (const int threads : {1, 3}) {
    for (const int64_t buffer : {int64_t{1}, 2 * kMiB, 100 * kMiB}) {
      targets_.clear();
      pieces_.clear();
      for (const auto& [begin, size] : std::vector<std::pair<int64_t, int64_t>>{{begin_, 20},
                                                                                {begin_ + 40, 1},
                                                                                {2 * kMiB - 3, 6},
                                                                                {5 * kMiB, kMiB},
                                                                                {size() - 1, 1}}) {
        want(begin, size);
      }
      const std::vector<FillSource> sources = {source()};
      const auto result =
          fill(sources, targets_, pieces_, {.buffer_bytes = buffer, .threads = threads});
      expect_right();
      // Blocks 0, 1, 2, 5 and the last.
      EXPECT_EQ(result.bytes_read, 4 * kMiB + size() % kMiB);
    }
  }
}

TEST_F(Fill, TwoPlacesForTheSameBytesAreOneRead) {
  for (const int64_t begin : {begin_, begin_ + kMiB / 2, begin_}) {
    want(begin, size() - begin);
  }
  const std::vector<FillSource> sources = {source()};
  EXPECT_EQ(fill(sources, targets_, pieces_, {.buffer_bytes = 1, .threads = 2}).bytes_read, size());
  expect_right();
}

TEST_F(Fill, AnyStretchComesBackWithAndWithoutCrcs) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    targets_.clear();
    pieces_.clear();
    for (int i = 0; i < 12; ++i) {
      const auto begin =
          begin_ + static_cast<int64_t>(random() % static_cast<uint64_t>(size() - begin_));
      want(begin, std::min<int64_t>(random() % 3'000'000, size() - begin));
    }
    const std::vector<FillSource> sources = {source(round % 2 == 0)};
    fill(sources, targets_, pieces_,
         {.buffer_bytes = static_cast<int64_t>(random() % 8'000'000), .threads = 1 + round % 3});
    expect_right();
  }
}

TEST_F(Fill, ADamagedBlockIsNamedWithItsTensorAndWhatWasOverwritten) {
  std::string bad = bytes_;
  bad[static_cast<size_t>(3 * kMiB)] = static_cast<char>(bad[static_cast<size_t>(3 * kMiB)] ^ 1);
  testing::write_file(path_, bad);
  want(begin_ + 10, 100);
  want(3 * kMiB - 50, 100);  // in part in the damaged block: goes through the buffer
  want(6 * kMiB, 2 * kMiB);
  const std::vector<FillSource> sources = {source()};
  try {
    fill(sources, targets_, pieces_, {.buffer_bytes = 1});
    FAIL();
  } catch (const CheckpointError& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr(path_), HasSubstr("block 3 "), HasSubstr("\"t1\""),
                                HasSubstr("perhaps in part: t0, t1")));
    EXPECT_THAT(e.what(), Not(HasSubstr("t2")));
  }
}

// Every second byte is taken, so the CRC is put together stretch by stretch.
TEST_F(Fill, DamageAnywhereInANeededBlockIsFound) {
  const Box whole{{0, 0}, {kMiB * 2, 2}};
  const Box column{{0, 1}, {kMiB * 2, 1}};
  const std::vector<FillSource> sources = {source()};
  const std::vector<FillPiece> pieces = {{0, 0, begin_, whole, column}};
  // Of block 1: its first and last byte, one that is taken and its neighbour that is not.
  for (const int64_t damaged : {kMiB, 2 * kMiB - 1, 2 * kMiB - 2, kMiB + kMiB / 2}) {
    std::string bad = bytes_;
    bad[static_cast<size_t>(damaged)] = static_cast<char>(bad[static_cast<size_t>(damaged)] ^ 64);
    testing::write_file(path_, bad);
    targets_ = {{"column", Tensor::zeros({kMiB * 2, 1}, DType::kUInt8), column, DType::kUInt8}};
    try {
      fill(sources, targets_, pieces, {.threads = 2});
      ADD_FAILURE() << damaged;
    } catch (const CheckpointError& e) {
      EXPECT_THAT(e.what(), AllOf(HasSubstr("block 1 "), HasSubstr("in part: column")));
    }
  }
}

TEST_F(Fill, ADamagedBlockIsNotBlamedOnTheByteOfABool) {
  std::string bools(4096, '\1');
  testing::write_file(path_, bools);
  BlockCrcs crcs;
  crcs.update(std::as_bytes(std::span(bools)));
  bools[10] = '\7';
  testing::write_file(path_, bools);
  const Box whole{{0, 0}, {64, 64}};
  const Box part{{0, 0}, {64, 63}};
  const std::vector<FillSource> sources = {{path_, 4096, crcs.crcs()}};
  const std::vector<FillPiece> pieces = {{0, 0, 0, whole, part}};
  targets_ = {{"mask", Tensor::zeros({64, 63}, DType::kBool), part, DType::kBool}};
  try {
    fill(sources, targets_, pieces);
    FAIL();
  } catch (const CheckpointError& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("the CRC of block 0 "), HasSubstr("\"mask\"")));
  }
}

TEST_F(Fill, WholeBlocksAreReadIntoThePlaceAndTheRestThroughTheBuffer) {
  const auto allocator = make_heap_allocator();
  const ScopedSlot<CurrentAllocator> scope({allocator});
  want(begin_, size() - begin_);
  const int64_t shard = allocator->stats().live_bytes;
  allocator->reset_peak();
  const std::vector<FillSource> sources = {source()};
  fill(sources, targets_, pieces_, {.buffer_bytes = 2 * kMiB, .threads = 2});
  EXPECT_LE(allocator->stats().peak_bytes, shard + 2 * kMiB);
  expect_right();
}

// Values of another dtype, also where elements lie across the edges of blocks.
TEST_F(Fill, ElementsAcrossTheEdgesOfBlocksAreConverted) {
  for (const bool checked : {false, true}) {
    const int64_t count = (size() - begin_ - 1) / 2;
    const Box whole{{0}, {count}};
    const Box part{{3}, {count - 5}};
    const std::vector<FillTarget> targets = {
        {"t", Tensor::zeros({count - 5}, DType::kFloat64), part, DType::kBFloat16}};
    // At an odd byte.
    const std::vector<FillPiece> pieces = {{0, 0, begin_ + 1, whole, part}};
    const std::vector<FillSource> sources = {source(checked)};
    fill(sources, targets, pieces, {.buffer_bytes = 1, .threads = 2});
    const auto* got = targets[0].local.data<double>();
    int wrong = 0;
    for (int64_t i = 0; i < count - 5; ++i) {
      const auto at = static_cast<size_t>(begin_ + 1 + 2 * (i + 3));
      const auto low = static_cast<uint8_t>(bytes_[at]);
      const auto high = static_cast<uint8_t>(bytes_[at + 1]);
      const uint32_t bits = static_cast<uint32_t>(high) << 24 | static_cast<uint32_t>(low) << 16;
      float value = 0;
      std::memcpy(&value, &bits, sizeof value);
      wrong += std::isnan(value) ? !std::isnan(got[i]) : got[i] != static_cast<double>(value);
    }
    EXPECT_EQ(wrong, 0);
  }
}

}  // namespace
}  // namespace dtensor::checkpoint
