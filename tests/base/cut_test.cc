#include "dtensor/base/cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace dtensor {
namespace {

// The rule by counting: a weight's share of the units, taken one unit after another. Unit i goes to
// the first part whose boundary is above it: the boundary of part c is the least x with
// x * W >= units * W(c).
std::vector<int64_t> boundaries(int64_t length, int64_t unit, const std::vector<int64_t>& weights) {
  int64_t units = 0;
  while (units * unit < length) ++units;
  int64_t all = 0;
  for (const int64_t w : weights) all += w;
  std::vector<int64_t> out{0};
  int64_t before = 0;
  for (const int64_t w : weights) {
    before += w;
    int64_t x = 0;
    while (x * all < units * before) ++x;
    out.push_back(std::min(length, x * unit));
  }
  return out;
}

// Every step of every chain of cuts of a length up to 64: a level sees no more than the range that
// the one before left, so that all ranges within [0, 64) stand for all chains.
TEST(Cut, IsTheRuleOnAllRangesTo64) {
  for (int parts = 1; parts <= 8; ++parts) {
    for (int64_t unit = 1; unit <= 5; ++unit) {
      for (int64_t length = 0; length <= 64; ++length) {
        const auto want =
            boundaries(length, unit, std::vector<int64_t>(static_cast<size_t>(parts), 1));
        int64_t least = length;
        int64_t most = 0;
        for (int c = 0; c < parts; ++c) {
          const auto i = static_cast<size_t>(c);
          least = std::min(least, want[i + 1] - want[i]);
          most = std::max(most, want[i + 1] - want[i]);
          for (int64_t begin = 0; begin + length <= 64; ++begin) {
            ASSERT_EQ(cut({begin, begin + length}, c, parts, unit),
                      (Range{begin + want[i], begin + want[i + 1]}));
          }
        }
        ASSERT_EQ(want.back(), length);
        ASSERT_LT(most - least, 2 * unit);
      }
    }
  }
}

TEST(Cut, FollowsAllWeightsTo2OfUpToFourParts) {
  for (int parts = 1; parts <= 4; ++parts) {
    int choices = 1;
    for (int c = 0; c < parts; ++c) choices *= 3;
    for (int choice = 1; choice < choices; ++choice) {  // 0: all weights 0
      std::vector<int64_t> weights;
      for (int c = 0, rest = choice; c < parts; ++c, rest /= 3) weights.push_back(rest % 3);
      for (int64_t length = 0; length <= 64; ++length) {
        for (int64_t unit = 1; unit <= 5; ++unit) {
          const auto want = boundaries(length, unit, weights);
          ASSERT_EQ(want.back(), length);
          for (int c = 0; c < parts; ++c) {
            const auto i = static_cast<size_t>(c);
            ASSERT_EQ(cut({7, 7 + length}, c, parts, unit, weights),
                      (Range{7 + want[i], 7 + want[i + 1]}));
          }
        }
      }
    }
  }
}

// Below 2^31 and from there on the products are taken in 64 and in 128 bits: the same rule.
TEST(Cut, IsOneRuleOnBothSidesOf2To31) {
  std::mt19937_64 random(31);
  const int64_t edge = int64_t{1} << 31;
  for (int i = 0; i < 20000; ++i) {
    const auto near = [&](uint64_t span) { return static_cast<int64_t>(random() % span); };
    const int64_t length = edge - 50 + near(100);
    const int64_t unit = random() % 2 == 0 ? near(9) + 1 : edge - 50 + near(100);
    const int parts = static_cast<int>(near(7)) + 1;
    const int64_t begin = random() % 2 == 0 ? 0 : INT64_MAX - length;
    std::vector<int64_t> weights;
    for (int c = 0; c < parts; ++c) weights.push_back(random() % 2 == 0 ? near(3) : edge - near(9));
    weights.back() += 1;
    // A boundary is the least number of units that is at least its share.
    const __int128 units = (__int128{length} + unit - 1) / unit;
    __int128 all = 0;
    for (const int64_t w : weights) all += w;
    __int128 before = 0;
    for (int c = 0; c < parts; ++c) {
      const Range part = cut({begin, begin + length}, c, parts, unit, weights);
      const auto is_least = [&](int64_t boundary) {
        const __int128 x = (__int128{boundary} - begin + unit - 1) / unit;
        return x * all >= units * before && (x == 0 || (x - 1) * all < units * before);
      };
      ASSERT_TRUE(is_least(part.begin)) << length << " " << unit << " " << c;
      before += weights[static_cast<size_t>(c)];
      ASSERT_TRUE(is_least(part.end)) << length << " " << unit << " " << c;
    }
  }
}

// pytorch#103306
TEST(Cut, PartsTileAndDifferByAtMostOne) {
  for (int64_t length = 0; length <= 200; ++length) {
    for (int parts = 1; parts <= 33; ++parts) {
      int64_t at = 0;
      int64_t least = length;
      int64_t most = 0;
      for (int c = 0; c < parts; ++c) {
        const Range part = cut({0, length}, c, parts);
        EXPECT_EQ(part.begin, at);
        at = part.end;
        least = std::min(least, part.size());
        most = std::max(most, part.size());
      }
      EXPECT_EQ(at, length);
      EXPECT_LE(most - least, 1);
    }
  }
}

TEST(Cut, EqualWeightsAreNoWeights) {
  for (int64_t length = 0; length < 40; ++length) {
    for (int c = 0; c < 5; ++c) {
      const std::vector<int64_t> weights(5, 7);
      EXPECT_EQ(cut({0, length}, c, 5, 3, weights), cut({0, length}, c, 5, 3));
    }
  }
}

TEST(Cut, DoesNotOverflow) {
  const int64_t far = INT64_MAX;
  EXPECT_EQ(cut({0, far}, 0, 2), (Range{0, far / 2 + 1}));
  EXPECT_EQ(cut({0, far}, 1, 2), (Range{far / 2 + 1, far}));
  EXPECT_EQ(cut({far - 3, far}, 2, 4), (Range{far - 1, far}));
  EXPECT_EQ(cut({0, far}, 1, 2, far), (Range{far, far}));
  const std::vector<int64_t> weights = {far - 1, 1};
  EXPECT_EQ(cut({0, far}, 1, 2, 1, weights), (Range{far - 1, far}));
}

TEST(Cut, RefusesWhatIsNoPart) {
  EXPECT_THROW(cut({0, 4}, 2, 2), ArgumentError);
  EXPECT_THROW(cut({0, 4}, -1, 2), ArgumentError);
  EXPECT_THROW(cut({0, 4}, 0, 0), ArgumentError);
  EXPECT_THROW(cut({4, 0}, 0, 2), ArgumentError);
  EXPECT_THROW(cut({0, 4}, 0, 2, 0), ArgumentError);
  for (const auto& weights :
       std::vector<std::vector<int64_t>>{{1}, {1, 1, 1}, {0, 0}, {2, -1}, {INT64_MAX, INT64_MAX}}) {
    EXPECT_THROW(cut({0, 4}, 0, 2, 1, weights), ArgumentError);
  }
}

}  // namespace
}  // namespace dtensor
