// Mesh dims of size 1 are real dims: they take part in a layout and in a rule like any other, and
// cost nothing.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "dtensor/placement/reshard_plan.h"
#include "dtensor/placement/rule.h"

namespace dtensor {
namespace {

MeshLayout mesh_of(const std::vector<int>& sizes) {
  std::vector<MeshDim> dims;
  for (size_t i = 0; i < sizes.size(); ++i) {
    dims.push_back({std::string(1, static_cast<char>('a' + i)), sizes[i], {}});
  }
  return MeshLayout(dims);
}

const Rule& mul() {
  static const Rule rule{.op = "mul", .letters = "a,a->a", .linear = {{0}, {1}}};
  return rule;
}

std::string out_of(const Rule& rule, const std::vector<Layout>& in) {
  const RuleMatch match = match_rule(rule, in, false);
  return match.mismatch ? match.mismatch->why : to_string(match.result.out.front().spec());
}

// pytorch#169381, hyper-parallel#428: 5 rows cut over b and c, times a tensor that is R over a.
TEST(SizeOne, ADoubleCutMeetsAReplicatedOperand) {
  for (const auto& sizes : {std::vector{1, 1, 1, 1}, std::vector{2, 1, 2, 1}}) {
    const MeshLayout mesh = mesh_of(sizes);
    const Layout x(mesh, {5}, {Replicate(), Shard(0), Shard(0)});
    const Layout y = Layout::replicated(mesh, {5});
    EXPECT_EQ(out_of(mul(), {x, y}), "[a:R, b:S(0), c:S(0), d:R]");
    EXPECT_EQ(out_of(mul(), {y, x}), "[a:R, b:S(0), c:S(0), d:R]");
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const int64_t begin = mesh.size() == 1 ? 0 : rank % 2 * 3;
      const int64_t size = mesh.size() == 1 ? 5 : 3 - rank % 2;
      EXPECT_EQ(x.box_of(rank), (Box{{begin}, {size}}));
    }
  }
}

// Each operand is cut by a mesh dim that the other is R on; where it has one rank, both are sliced
// there without a byte.
TEST(SizeOne, OperandsCutByDifferentMeshDimsMeetWhereThatIsFree) {
  const MeshLayout mesh = mesh_of({2, 1, 1});
  const Layout by_a(mesh, {5}, {Shard(0)});
  const Layout by_b(mesh, {5}, {Replicate(), Shard(0)});
  const Layout by_c(mesh, {5}, {Replicate(), Replicate(), Shard(0)});
  EXPECT_EQ(out_of(mul(), {by_a, by_b}), "[a:S(0), b:S(0), c:R]");
  EXPECT_EQ(out_of(mul(), {by_b, by_a}), "[a:S(0), b:S(0), c:R];order=0:b,a");
  EXPECT_EQ(out_of(mul(), {by_b, by_c}), "[a:R, b:S(0), c:S(0)]");
  EXPECT_EQ(out_of(mul(), {by_c, by_b.with(0, Shard(0))}),
            "[a:S(0), b:S(0), c:S(0)];order=0:b,a,c");
  // With two ranks on each the one would have to send.
  const MeshLayout wide = mesh_of({2, 2});
  EXPECT_NE(
      out_of(mul(), {Layout(wide, {5}, {Shard(0)}), Layout(wide, {5}, {Replicate(), Shard(0)})})
          .find("'a' is not cut alike"),
      std::string::npos);
}

// On random layouts: what a rule says on a mesh with dims of size 1, each of which cuts one letter
// in some of the operands, is what it says without those cuts.
TEST(SizeOne, CutsOfOneRankChangeNoAnswer) {
  const std::vector<Rule> rules = {
      {.op = "add", .letters = "ab,ab->ab", .linear = {{0, 1}}},
      {.op = "mul", .letters = "ab,ab->ab", .linear = {{0}, {1}}},
      {.op = "matmul", .letters = "mk,kn->mn", .linear = {{0}, {1}}},
      {.op = "sum", .letters = "ab->a", .linear = {{0}}},
  };
  constexpr std::string_view kLetters = "abmkn";
  std::mt19937 random(169);
  int legal = 0;
  for (int i = 0; i < 6000; ++i) {
    std::vector<int> sizes = {2, 2, 1, 1, 1};
    std::shuffle(sizes.begin(), sizes.end(), random);
    const MeshLayout mesh = mesh_of(sizes);
    const Rule& rule = rules[random() % rules.size()];
    const RuleLetters letters = parse_letters(rule);
    std::vector<Layout> bare;
    std::vector<Layout> in;
    for (size_t k = 0; k < letters.in.size(); ++k) {
      bare.push_back(Layout::replicated(mesh, {5, 5}));
      in.push_back(bare.back());
    }
    for (int m = 0; m < mesh.ndim(); ++m) {
      const char letter = kLetters[random() % kLetters.size()];
      for (size_t k = 0; k < in.size(); ++k) {
        const size_t d = letters.in[k].find(letter);
        if (d == std::string_view::npos || random() % 2 == 0) continue;
        in[k] = in[k].with(m, Shard(static_cast<int>(d)));
        if (mesh.size(m) > 1) bare[k] = bare[k].with(m, Shard(static_cast<int>(d)));
      }
    }
    const RuleMatch with = match_rule(rule, in, false);
    const RuleMatch without = match_rule(rule, bare, false);
    ASSERT_EQ(with.mismatch.has_value(), without.mismatch.has_value())
        << rule.op << " " << to_string(in.front()) << " " << to_string(in.back()) << ": "
        << (with.mismatch ? with.mismatch->why : without.mismatch->why);
    if (with.mismatch) continue;
    ++legal;
    const Layout& out = with.result.out.front();
    const Layout& plain = without.result.out.front();
    for (const int rank : mesh.ranks()) EXPECT_EQ(out.box_of(rank), plain.box_of(rank));
  }
  EXPECT_GT(legal, 1000);
}

// pytorch#169381: any placements on any of the mesh dims of size 1 at once, beside dims that stay.
TEST(SizeOne, EveryMoveIsFree) {
  const MeshLayout mesh = mesh_of({2, 1, 3, 1, 1, 1});
  constexpr std::array<int, 4> kOnes = {1, 3, 4, 5};
  std::mt19937 random(428);
  for (const PartialOp op : {PartialOp::kSum, PartialOp::kMin, PartialOp::kMax, PartialOp::kProd}) {
    for (int i = 0; i < 1000; ++i) {
      const std::array<Placement, 4> all = {Replicate(), Shard(0), Shard(1), Partial(op)};
      Layout from(mesh, {7, 4}, {Shard(0), Replicate(), i % 2 == 0 ? Shard(0) : Partial(op)});
      Layout to = from;
      for (const int m : kOnes) {
        from = from.with(m, all[random() % 4]);
        to = to.with(m, all[random() % 4]);
      }
      const ReshardPlan moves = plan(from, to);
      EXPECT_TRUE(moves.steps().empty()) << to_string(from) << " -> " << to_string(to);
      EXPECT_EQ(moves.payload_minimum(), 0) << to_string(from) << " -> " << to_string(to);
    }
  }
}

}  // namespace
}  // namespace dtensor
