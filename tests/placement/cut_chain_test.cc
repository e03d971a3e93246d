// The nested cut, level by level, against a formula of its own.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "dtensor/base/cut.h"
#include "dtensor/placement/layout.h"
#include "dtensor/tests/support/sanitized.h"

namespace dtensor {
namespace {

using Wide = __int128;

constexpr int kStep = testing::kSanitized ? 7 : 1;

// The parts of [0, length) by the words of the rule: boundary c is the least whole number of units
// that is at least the share W(c) / W of all units, and at most `length`. Found by halving, so that
// nothing is divided.
std::vector<int64_t> boundaries(int64_t length, int64_t unit, const std::vector<int64_t>& weights) {
  int64_t units = length / unit;
  if (units * unit < length) ++units;
  Wide all = 0;
  for (const int64_t w : weights) all += w;
  std::vector<int64_t> out = {0};
  Wide before = 0;
  for (const int64_t w : weights) {
    before += w;
    int64_t low = 0;
    int64_t high = units;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (Wide{middle} * all >= Wide{units} * before) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    const Wide at = Wide{low} * unit;
    out.push_back(at < length ? static_cast<int64_t>(at) : length);
  }
  return out;
}

std::vector<int64_t> weights_of(const MeshLayout& mesh, int m) {
  const auto given = mesh.weights(m);
  if (given.empty()) return std::vector<int64_t>(static_cast<size_t>(mesh.size(m)), 1);
  return {given.begin(), given.end()};
}

// `chain[k]` has the first k levels of the last one. Checks the parts of level `depth` in `part`,
// and those below them.
void check_levels(std::span<const Layout> chain, size_t depth, Range part, Coordinate at) {
  ASSERT_EQ(chain[depth].range(0, at), part) << to_string(chain[depth]);
  if (depth + 1 == chain.size()) return;
  const MeshLayout& mesh = chain.back().mesh();
  const Level level = chain.back().spec().levels(0)[depth];
  const auto want = boundaries(part.size(), level.unit, weights_of(mesh, level.mesh_dim));
  int64_t least = part.size();
  int64_t most = 0;
  for (int c = 0; c < mesh.size(level.mesh_dim); ++c) {
    const auto i = static_cast<size_t>(c);
    const Range mine{part.begin + want[i], part.begin + want[i + 1]};
    least = std::min(least, mine.size());
    most = std::max(most, mine.size());
    at[level.mesh_dim] = c;
    check_levels(chain, depth + 1, mine, at);
    if (::testing::Test::HasFatalFailure()) return;
  }
  ASSERT_EQ(want.back(), part.size()) << "the parts tile";
  if (mesh.weights(level.mesh_dim).empty()) {
    ASSERT_LT(most - least, 2 * level.unit);
  }
}

// Cuts dim 0 by levels appended one after another.
void check(const MeshLayout& mesh, int64_t length, std::span<const Level> levels) {
  std::vector<Layout> chain = {Layout::replicated(mesh, {length})};
  for (const Level& l : levels) chain.push_back(chain.back().with(l.mesh_dim, Shard(0), l.unit));
  Coordinate origin;
  origin.ndim = mesh.ndim();
  check_levels(chain, 0, {0, length}, origin);
}

MeshLayout mesh_of(const std::vector<int>& sizes) {
  std::vector<MeshDim> dims;
  for (size_t i = 0; i < sizes.size(); ++i) {
    dims.push_back({std::string(1, static_cast<char>('a' + i)), sizes[i], {}});
  }
  return MeshLayout(dims);
}

constexpr int64_t kLongest = 64;
constexpr int kChoices = 40;  // of a level: 5 units, 8 numbers of parts

// What cut() gives for every range within [0, 64], every unit to 5 and every number of parts to 8.
class SmallCuts {
 public:
  SmallCuts() : ends_(static_cast<size_t>(index(kLongest + 1, 0, 0))) {
    for (int64_t begin = 0; begin <= kLongest; ++begin) {
      for (int64_t end = begin; end <= kLongest; ++end) {
        for (int choice = 0; choice < kChoices; ++choice) add({begin, end}, choice);
      }
    }
  }
  static int parts(int choice) { return choice % 8 + 1; }
  static int64_t unit(int choice) { return choice / 8 + 1; }
  // The ends of the parts.
  const int8_t* ends(int64_t begin, int64_t end, int choice) const {
    return &ends_[static_cast<size_t>(index(begin, end, choice))];
  }

 private:
  static int64_t index(int64_t begin, int64_t end, int choice) {
    return ((begin * (kLongest + 1) + end) * kChoices + choice) * 8;
  }

  // By the words of the rule; the parts tile, and their sizes differ by less than two units.
  void add(Range whole, int choice) {
    const int n = parts(choice);
    const auto want =
        boundaries(whole.size(), unit(choice), std::vector<int64_t>(static_cast<size_t>(n), 1));
    int64_t at = whole.begin;
    int64_t least = whole.size();
    int64_t most = 0;
    for (int c = 0; c < n; ++c) {
      const Range part = cut(whole, c, n, unit(choice));
      const bool is_right = part.begin == at && part.size() >= 0 &&
                            part.end == whole.begin + want[static_cast<size_t>(c) + 1];
      if (!is_right)
        ADD_FAILURE() << whole.begin << ":" << whole.end << " part " << c << " of " << n;
      at = part.end;
      least = std::min(least, part.size());
      most = std::max(most, part.size());
      ends_[static_cast<size_t>(index(whole.begin, whole.end, choice) + c)] =
          static_cast<int8_t>(part.end);
    }
    EXPECT_EQ(at, whole.end);
    EXPECT_LT(most - least, 2 * unit(choice));
  }

  std::vector<int8_t> ends_;
};

// Every chain of up to three levels of up to 8 parts and units to 5, of every length to 64 (a level
// of one part is none): its parts tile the dim in the order of the coordinates, and where a level
// ends a part, the levels appended to it end one too.
TEST(CutChain, EveryShortChainOfEveryLengthTilesAndAppendingMovesNoBoundary) {
  const SmallCuts cuts;
  if (HasFailure()) return;
  int64_t parts = 0;
  for (int64_t length = 0; length <= kLongest; length += kStep) {
    for (int chosen = 0; chosen < kChoices * kChoices * kChoices; ++chosen) {
      const int one = chosen % kChoices;
      const int two = chosen / kChoices % kChoices;
      const int three = chosen / kChoices / kChoices;
      int64_t at = 0;  // where the parts of all three levels end so far
      bool moved = false;
      int64_t first = 0;
      const int8_t* ends = cuts.ends(0, length, one);
      for (int a = 0; a < SmallCuts::parts(one); ++a) {
        int64_t second = first;
        const int8_t* second_ends = cuts.ends(first, ends[a], two);
        for (int b = 0; b < SmallCuts::parts(two); ++b) {
          const int8_t* third_ends = cuts.ends(second, second_ends[b], three);
          for (int c = 0; c < SmallCuts::parts(three); ++c, ++parts) {
            moved |= third_ends[c] < at;
            at = third_ends[c];
          }
          second = second_ends[b];
          moved |= at != second;
        }
        first = ends[a];
        moved |= at != first;
      }
      ASSERT_FALSE(moved || at != length)
          << length << " by choices " << one << " " << two << " " << three;
    }
  }
  if (kStep == 1) {
    EXPECT_EQ(parts, 65 * 180 * 180 * 180);
  }
}

// The same chains as layouts, against the rule in words. Each takes one length in turn.
TEST(CutChain, UnweightedChainsOfLayoutsFollowTheRule) {
  int64_t length = 0;
  for (int chosen = 0; chosen < 40 * 40 * 40; chosen += kStep) {
    const int one = chosen % 40;
    const int two = chosen / 40 % 40;
    const int three = chosen / 1600;
    length = (length + 1) % 65;
    const std::array<Level, 3> levels = {Level{0, one / 8 + 1}, Level{1, two / 8 + 1},
                                         Level{2, three / 8 + 1}};
    check(mesh_of({one % 8 + 1, two % 8 + 1, three % 8 + 1}), length, levels);
    if (HasFatalFailure()) return;
  }
}

TEST(CutChain, SampledWeightedChainsFollowTheRuleUpToSizesNear2To62) {
  std::mt19937_64 random(20000);
  for (int i = 0; i < 20000; ++i) {
    const size_t ndim = random() % 3 + 1;
    std::vector<MeshDim> dims;
    for (size_t m = 0; m < ndim; ++m) {
      MeshDim& dim = dims.emplace_back(
          MeshDim{std::string(1, static_cast<char>('a' + m)), static_cast<int>(random() % 6 + 1)});
      if (random() % 4 == 0) continue;  // without weights
      const uint64_t most = random() % 8 == 0 ? uint64_t{1} << 59 : 5;
      for (int c = 0; c < dim.size; ++c)
        dim.weights.push_back(static_cast<int64_t>(random() % most));
      if (std::ranges::count(dim.weights, 0) == dim.size) dim.weights.back() = 1;
    }
    constexpr std::array<int64_t, 4> kLengths = {9, 100, 1 << 20, int64_t{1} << 62};
    const int64_t bound = kLengths[random() % 4];
    const int64_t length =
        bound - static_cast<int64_t>(random() % 10 % static_cast<uint64_t>(bound));
    std::vector<Level> levels;
    std::vector<int> order;
    for (size_t m = 0; m < ndim; ++m) {
      order.insert(order.begin() + static_cast<ptrdiff_t>(random() % (m + 1)), static_cast<int>(m));
    }
    for (const int m : order) {
      const bool huge = random() % 16 == 0;
      const auto unit = static_cast<int64_t>(random() % (huge ? uint64_t{1} << 61 : 6)) + 1;
      levels.push_back({m, unit});
    }
    check(MeshLayout(dims), length, levels);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace dtensor
