// The nested cut, level by level, against a formula of its own.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "dtensor/placement/layout.h"

namespace dtensor {
namespace {

using Wide = __int128;

#if defined(__SANITIZE_ADDRESS__)
constexpr int kStep = 7;  // the sanitizers are slow, and see in one chain what they see in all
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr int kStep = 7;
#else
constexpr int kStep = 1;
#endif
#else
constexpr int kStep = 1;
#endif

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

// Every chain of up to three levels of up to 8 parts and units to 5. That the parts of one range
// are right for all lengths to 64 is tests/base/cut_test.cc; here each chain takes one length in
// turn, as what a chain adds is the range that a level hands to the next.
TEST(CutChain, UnweightedChainsTileAndAppendingMovesNoBoundary) {
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
