// Records of many ranks put together, and what one rank then reads: counted, not timed.

#include <gtest/gtest.h>

#include <map>

#include "dtensor/checkpoint/attempt.h"
#include "dtensor/checkpoint/contents.h"
#include "dtensor/checkpoint/crc32c.h"
#include "dtensor/checkpoint/file_io.h"
#include "dtensor/checkpoint/open_stored.h"
#include "dtensor/checkpoint/record.h"
#include "dtensor/checkpoint/safetensors.h"
#include "dtensor/checkpoint/stored_data.h"
#include "dtensor/placement/tiling.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"

namespace dtensor::checkpoint {
namespace {

using testing::TemporaryDirectory;
using testing::write_file;

constexpr int kRanks = 100;
constexpr int kTensors = 60;
constexpr int64_t kRows = 3;  // of every rank

// An attempt in which every rank has three rows of every tensor.
Attempt make_attempt(const std::string& run) {
  const std::string id = "20260301T101500Z-1f2e3d4c-g0-s0";
  const Attempt attempt = *attempt_of(run, attempt_name(1, id));
  std::filesystem::create_directories(attempt.path);
  for (int r = 0; r < kRanks; ++r) {
    Record record;
    record.id = id;
    record.step = 1;
    record.rank = r;
    record.world = kRanks;
    std::vector<safetensors::Item> items;
    for (int t = 0; t < kTensors; ++t) {
      const std::string name = "layers." + std::to_string(t) + ".weight";
      items.push_back({name, DType::kUInt8, {kRows, 2}, nullptr});
      const Box box{{r * kRows, 0}, {kRows, 2}};
      record.tensors.push_back({name, DType::kUInt8, {kRanks * kRows, 2}, {{0, name, box}}});
    }
    const std::string bytes = safetensors::header(safetensors::entries_of(items)) +
                              std::string(items.size() * kRows * 2, 'x');
    BlockCrcs crcs;
    crcs.update(bytes_of(bytes));
    record.files = {{data_file_name(r), crcs.bytes(), crcs.crcs()}};
    write_file(attempt.path + "/" + data_file_name(r), bytes);
    write_file(attempt.path + "/" + record_name(r), to_text(record));
  }
  return attempt;
}

TEST(LoadPlan, HasEveryChunkOnceAndOfThoseOnlyWhatABoxNeeds) {
  const TemporaryDirectory run;
  Examined examined = examine(make_attempt(run.path()));
  ASSERT_TRUE(examined.is_complete()) << examined.reason();
  Contents& contents = examined.contents;
  EXPECT_EQ(contents.files.size(), static_cast<size_t>(kRanks));
  ASSERT_EQ(contents.tensors.size(), static_cast<size_t>(kTensors));
  locate_chunks(contents);
  for (const auto& [name, tensor] : contents.tensors) {
    ASSERT_EQ(tensor.chunks.size(), static_cast<size_t>(kRanks));
    for (const StoredChunk& c : tensor.chunks) {
      const safetensors::File file(contents.files[static_cast<size_t>(c.file)].path);
      EXPECT_EQ(c.begin_bytes, file.data_offset_bytes() + file.find(name)->begin_bytes);
      if (c.file > 2) break;  // opening all of them says no more
    }
    // Rows 10 to 49 are in the chunks of ranks 3 (its last two rows) to 16 (its first two).
    std::map<int, Box> parts;
    for_each_part(tensor, {{10, 0}, {40, 1}}, [&](const StoredChunk& c, const Box& part) {
      EXPECT_TRUE(parts.emplace(c.file, part).second);
    });
    EXPECT_EQ(parts.size(), 14U);
    EXPECT_EQ(parts.begin()->second, (Box{{10, 0}, {2, 1}}));
    EXPECT_EQ(parts.rbegin()->second, (Box{{48, 0}, {2, 1}}));
    EXPECT_EQ(parts.rbegin()->first, 16);
  }
}

// pytorch#163548: twice as many holders, about twice as much work.
TEST(LoadPlan, ComparisonsOfBoxesGrowAsTheHolders) {
  int64_t before = 0;
  for (const int64_t holders : {256, 512, 1024}) {
    Tiling from{{holders * 4, 8}, {}};
    Tiling to{{holders * 4, 8}, {}};
    for (int i = 0; i < holders; ++i) {
      from.tiles.push_back({{{i * 4, 0}, {4, 8}}, i});
      // Cut along both dims, so that each takes from many.
      const int64_t half = holders / 2;
      to.tiles.push_back({{{i % half * 8, i / half * 4}, {8, 4}}, i});
    }
    int64_t comparisons = 0;
    EXPECT_EQ(std::ssize(moves(from, to, &comparisons)), holders * 2);
    if (before > 0) {
      EXPECT_LE(comparisons, before * 5 / 2);
    }
    before = comparisons;
  }
}

}  // namespace
}  // namespace dtensor::checkpoint
