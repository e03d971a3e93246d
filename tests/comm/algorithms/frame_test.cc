#include "dtensor/comm/algorithms/frame.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "dtensor/comm/call.h"

namespace dtensor::comm {
namespace {

Call all_reduce_call(int64_t count, std::string label) {
  Call call;
  call.op = OpKind::kAllReduce;
  call.in = {ConstBuffer(nullptr, count, DType::kFloat32)};
  call.out = {Buffer{nullptr, count, DType::kFloat32}};
  call.label = std::move(label);
  call.sequence = 7;
  call.key = key_of(call);
  return call;
}

TEST(Frame, EqualCallsDoNotDiffer) {
  const Call call = all_reduce_call(100, "loss");
  EXPECT_EQ(difference(make_header(call, 5, 0), 1, make_header(call, 5, 1)), "");
}

// nccl#1417
TEST(Frame, ADifferenceNamesBothCallsAndRanks) {
  const std::string what = difference(make_header(all_reduce_call(100, "loss"), 5, 0), 1,
                                      make_header(all_reduce_call(200, "norm"), 5, 1));
  EXPECT_EQ(what,
            "rank 0 is in #7 all_reduce sum f32[100] \"loss\", "
            "rank 1 is in #7 all_reduce sum f32[200] \"norm\"");
}

TEST(Frame, EveryFieldIsCompared) {
  const Call call = all_reduce_call(100, "loss");
  const Header mine = make_header(call, 5, 0);
  const auto differs = [&](auto change) {
    Header theirs = make_header(call, 5, 1);
    change(theirs);
    return !difference(mine, 1, theirs).empty();
  };
  EXPECT_TRUE(differs([](Header& h) { h.comm = 6; }));
  EXPECT_TRUE(differs([](Header& h) { h.sequence = 8; }));
  EXPECT_TRUE(differs([](Header& h) { h.history = 1; }));
  EXPECT_TRUE(differs([](Header& h) { h.key.op = 1; }));
  EXPECT_TRUE(differs([](Header& h) { h.key.reduce = 2; }));
  EXPECT_TRUE(differs([](Header& h) { h.key.dtype = 3; }));
  EXPECT_TRUE(differs([](Header& h) { h.key.root = 1; }));
  EXPECT_TRUE(differs([](Header& h) { h.key.counts = 9; }));
  EXPECT_TRUE(differs([](Header& h) { h.key.label = 9; }));
  EXPECT_TRUE(differs([](Header& h) { h.sends = 9; }));
  EXPECT_TRUE(differs([](Header& h) { h.expects = 9; }));
}

TEST(Frame, AHeaderOfNonsenseIsToldWithoutReadingIt) {
  const Call call = all_reduce_call(100, "loss");
  Header theirs;
  std::memset(static_cast<void*>(&theirs), 0xff, sizeof theirs);
  const std::string what = difference(make_header(call, 5, 0), 3, theirs);
  EXPECT_NE(what.find("rank 3 sent what is no message of this Comm"), std::string::npos) << what;
  theirs.comm = 5;  // the rest is nonsense still
  EXPECT_NE(difference(make_header(call, 5, 0), 3, theirs).find("no message"), std::string::npos);
}

TEST(Frame, ALongLabelIsCutInTheTextAndComparedWhole) {
  const std::string a(100, 'x');
  const std::string b = a + "y";
  const Header mine = make_header(all_reduce_call(1, a), 5, 0);
  EXPECT_EQ(mine.label_text(), std::string(mine.label.size(), 'x'));
  EXPECT_NE(difference(mine, 1, make_header(all_reduce_call(1, b), 5, 1)), "");
}

}  // namespace
}  // namespace dtensor::comm
