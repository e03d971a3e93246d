#include "dtensor/comm/segments.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "dtensor/base/error.h"

namespace dtensor::comm {
namespace {

TEST(Segments, OffsetsAreTheSumsOfTheCountsBefore) {
  const Segments s(std::vector<int64_t>{3, 0, 2});
  EXPECT_EQ(s.size(), 3);
  EXPECT_EQ(s.total(), 5);
  EXPECT_EQ(s.offset(1), 3);
  EXPECT_EQ(s.count(1), 0);
  EXPECT_EQ(s.offset(2), 3);
  EXPECT_EQ(s.count(2), 2);
  EXPECT_EQ(Segments(std::vector<int64_t>{}).total(), 0);
}

TEST(Segments, EvenFollowsTheCutRule) {
  EXPECT_EQ(Segments::even(11, 4), Segments(std::vector<int64_t>{3, 3, 3, 2}));
  EXPECT_EQ(Segments::even(5, 4), Segments(std::vector<int64_t>{2, 1, 1, 1}));
  EXPECT_EQ(Segments::even(0, 2), Segments(std::vector<int64_t>{0, 0}));
}

TEST(Segments, CountsThatCannotBeAreRefused) {
  EXPECT_THROW(Segments(std::vector<int64_t>{1, -1}), ArgumentError);
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Segments(std::vector<int64_t>{most, 0}).total(), most);
  EXPECT_THROW(Segments(std::vector<int64_t>{most, 1}), ArgumentError);
}

TEST(Segments, HashTellsCountsAndOrderApart) {
  const auto hash = [](std::vector<int64_t> counts) { return Segments(counts).hash(); };
  EXPECT_EQ(hash({3, 0, 2}), hash({3, 0, 2}));
  EXPECT_NE(hash({3, 0, 2}), hash({3, 2, 0}));
  EXPECT_NE(hash({3, 0, 2}), hash({3, 2}));
  EXPECT_NE(hash({0, 0}), hash({0, 0, 0}));
}

}  // namespace
}  // namespace dtensor::comm
