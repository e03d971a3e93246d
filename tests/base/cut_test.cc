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

TEST(Cut, IsTheRuleForAllSmallCases) {
  for (int64_t length = 0; length <= 20; ++length) {
    for (int parts = 1; parts <= 7; ++parts) {
      for (int64_t unit = 1; unit <= 4; ++unit) {
        const auto want =
            boundaries(length, unit, std::vector<int64_t>(static_cast<size_t>(parts), 1));
        for (int c = 0; c < parts; ++c) {
          const auto i = static_cast<size_t>(c);
          EXPECT_EQ(cut({5, 5 + length}, c, parts, unit), (Range{5 + want[i], 5 + want[i + 1]}));
        }
      }
    }
  }
}

TEST(Cut, FollowsWeights) {
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    std::vector<int64_t> weights;
    for (unsigned k = random() % 5 + 1; k > 0; --k) weights.push_back(random() % 4);
    if (std::ranges::count(weights, 0) == static_cast<long>(weights.size())) weights[0] = 1;
    const auto length = static_cast<int64_t>(random() % 30);
    const auto unit = static_cast<int64_t>(random() % 4 + 1);
    const auto want = boundaries(length, unit, weights);
    for (size_t c = 0; c < weights.size(); ++c) {
      EXPECT_EQ(
          cut({0, length}, static_cast<int>(c), static_cast<int>(weights.size()), unit, weights),
          (Range{want[c], want[c + 1]}));
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
