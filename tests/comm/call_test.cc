#include "dtensor/comm/call.h"

#include <gtest/gtest.h>

#include <vector>

namespace dtensor::comm {
namespace {

Call gather(std::vector<std::vector<int64_t>> counts, std::vector<DType> dtypes) {
  Call call;
  call.op = OpKind::kAllGather;
  for (size_t i = 0; i < counts.size(); ++i) {
    call.segments.emplace_back(counts[i]);
    call.in.emplace_back(nullptr, counts[i][0], dtypes[i]);
    call.out.push_back(Buffer{nullptr, call.segments[i].total(), dtypes[i]});
  }
  return call;
}

TEST(Call, KeysDifferWhereCountsOrderOrDtypesOfAListDo) {
  const auto f = DType::kFloat32;
  const auto i = DType::kInt32;
  const uint64_t base = key_of(gather({{2, 1}, {3, 4}}, {f, i})).hash();
  EXPECT_EQ(key_of(gather({{2, 1}, {3, 4}}, {f, i})).hash(), base);
  EXPECT_NE(key_of(gather({{3, 4}, {2, 1}}, {f, i})).hash(), base);
  EXPECT_NE(key_of(gather({{1, 2}, {3, 4}}, {f, i})).hash(), base);
  EXPECT_NE(key_of(gather({{2, 1}, {3, 4}}, {f, f})).hash(), base);
  EXPECT_NE(key_of(gather({{2, 1}}, {f})).hash(), base);
}

// A rank outside the root has only one side of the call; its key is that of the root.
TEST(Call, KeysOfRootedCallsAgreeBetweenRootAndOthers) {
  Call root;
  root.op = OpKind::kScatter;
  root.root = 1;
  root.segments.emplace_back(std::vector<int64_t>{2, 3});
  root.in.emplace_back(nullptr, 5, DType::kInt64);
  root.out.push_back(Buffer{nullptr, 3, DType::kInt64});
  Call other = root;
  other.in[0] = ConstBuffer();
  other.out[0].count = 2;
  EXPECT_EQ(key_of(root).hash(), key_of(other).hash());
  other.root = 0;
  EXPECT_NE(key_of(root).hash(), key_of(other).hash());
}

TEST(Call, WordsSayWhatPeopleNeed) {
  EXPECT_EQ(describe(key_of(gather({{2, 1}, {3, 4}}, {DType::kFloat32, DType::kInt32})), "w"),
            "all_gather_v f32[10] in 2 items \"w\"");
  Call call;
  call.op = OpKind::kBroadcast;
  call.out.push_back(Buffer{nullptr, 7, DType::kBFloat16});
  call.root = 2;
  EXPECT_EQ(describe(key_of(call), ""), "broadcast bf16[7] with root 2");
  call = Call{};
  EXPECT_EQ(describe(key_of(call), "step"), "barrier \"step\"");
}

}  // namespace
}  // namespace dtensor::comm
