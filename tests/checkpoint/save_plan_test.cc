#include "dtensor/checkpoint/save_plan.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/crc32c.h"
#include "dtensor/checkpoint/record.h"
#include "dtensor/tests/checkpoint/bag.h"

namespace dtensor::checkpoint {
namespace {

using testing::Bag;

constexpr int64_t kFileBytes = 3 << 20;

// The record as it is once the files are written.
int64_t bytes_of_record(const SavePlan& plan) {
  Record record = plan.record;
  for (const PlannedFile& file : plan.files) {
    auto bytes = static_cast<int64_t>(file.header.size());
    for (const Tensor& t : file.parts) bytes += t.size_bytes();
    const auto blocks = static_cast<size_t>((bytes + kBlockBytes - 1) / kBlockBytes);
    record.files.push_back({file.name, bytes, std::vector<uint32_t>(blocks, 0xdeadbeef)});
  }
  return static_cast<int64_t>(to_text(record).size());
}

TEST(SavePlan, ARecordThatNobodyCouldReadIsRefused) {
  Bag bag;
  bag.add("large", DTensor(Tensor::zeros({5 << 20}, DType::kUInt8)));  // two files
  bag.add("w", DTensor(Tensor::zeros({3})));
  NamedState state = named_state({.model = bag});
  state.texts = {{"notes", "\"" + std::string(1000, '\t') + "\""}};
  Record about;
  about.id = "20260301T101500Z-1f2e3d4c-g0-s0";
  const SavePlan plan = plan_save(state, about, {.file_bytes = kFileBytes});
  ASSERT_EQ(plan.files.size(), 2U);
  const int64_t bytes = bytes_of_record(plan);
  EXPECT_GT(bytes, 2000);  // a tab is written as two bytes or more
  EXPECT_NO_THROW(plan_save(state, about, {.file_bytes = kFileBytes, .record_bytes = bytes}));
  EXPECT_THROW(plan_save(state, about, {.file_bytes = kFileBytes, .record_bytes = bytes - 1}),
               ArgumentError);
}

}  // namespace
}  // namespace dtensor::checkpoint
