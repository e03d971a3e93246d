#include "dtensor/placement/tiling.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "dtensor/placement/box_index.h"

namespace dtensor {
namespace {

Tiling rows(int64_t n, std::vector<Range> parts) {
  Tiling tiling{{n, 4}, {}};
  for (const Range& r : parts) {
    tiling.tiles.push_back({{{r.begin, 0}, {r.size(), 4}}, static_cast<int>(tiling.tiles.size())});
  }
  return tiling;
}

bool in(const Box& box, int64_t i, int64_t j) {
  return i >= box.offset[0] && i < box.offset[0] + box.size[0] && j >= box.offset[1] &&
         j < box.offset[1] + box.size[1];
}

// Every wanted element comes once, from a tile that has it; from the receiver itself where it can.
void check_moves(const Tiling& from, const Tiling& to, bool own_first) {
  const auto all = moves(from, to);
  std::map<std::tuple<int, int64_t, int64_t>, int> source;
  for (const BoxMove& move : all) {
    for (int64_t i = move.box.offset[0]; i < move.box.offset[0] + move.box.size[0]; ++i) {
      for (int64_t j = move.box.offset[1]; j < move.box.offset[1] + move.box.size[1]; ++j) {
        EXPECT_TRUE(source.emplace(std::tuple(move.dst, i, j), move.src).second);
        bool held = false;
        for (const Tile& tile : from.tiles) held |= tile.holder == move.src && in(tile.box, i, j);
        EXPECT_TRUE(held);
      }
    }
  }
  size_t wanted = 0;
  for (const Tile& tile : to.tiles) {
    for (int64_t i = 0; i < to.shape[0]; ++i) {
      for (int64_t j = 0; j < to.shape[1]; ++j) {
        if (!in(tile.box, i, j)) continue;
        ++wanted;
        const auto found = source.find({tile.holder, i, j});
        ASSERT_NE(found, source.end());
        for (const Tile& own : from.tiles) {
          if (own_first && own.holder == tile.holder && in(own.box, i, j)) {
            EXPECT_EQ(found->second, tile.holder);
          }
        }
      }
    }
  }
  EXPECT_EQ(source.size(), wanted);
}

TEST(Moves, BringEveryPairOfLayoutsOfDifferentMeshes) {
  const Shape shape{7, 5};
  std::vector<Tiling> tilings;
  for (const char* text :
       {"a=1:R", "a=3:S(0)", "a=4:S(1)", "a=2,b=2:S(0),S(1)", "a=2,b=3:S(0),S(0)", "a=2,b=2:R,S(1)",
        "x=3@1-3:S(0)", "a=8:S(0)", "a=2,b=2:S(1),S(1);order=1:b,a"}) {
    tilings.push_back(tiling_of(parse_layout(text, shape)));
  }
  for (const Tiling& from : tilings) {
    for (const Tiling& to : tilings) check_moves(from, to, true);
  }
}

// pytorch#180346
TEST(Moves, BetweenTwoMeshesGoFromOwnerToReceiver) {
  const auto all =
      moves(tiling_of(parse_layout("x=2:S(0)", {5})), tiling_of(parse_layout("x=3@1-3:S(0)", {5})));
  const std::vector<BoxMove> want = {
      {0, 1, {{0}, {2}}}, {0, 2, {{2}, {1}}}, {1, 2, {{3}, {1}}}, {1, 3, {{4}, {1}}}};
  EXPECT_EQ(all, want);
}

TEST(Moves, TakeFromOverlappingTilesWithoutTwice) {
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    Tiling from{{6, 6}, {{{{0, 0}, {6, 6}}, 9}}};  // so that everything is held
    Tiling to{{6, 6}, {}};
    for (int k = 0; k < 5; ++k) {
      for (Tiling* tiling : {&from, &to}) {
        Box box{{static_cast<int64_t>(random() % 6), static_cast<int64_t>(random() % 6)}, {0, 0}};
        for (int d = 0; d < 2; ++d) {
          box.size[d] = static_cast<int64_t>(random() % static_cast<unsigned>(7 - box.offset[d]));
        }
        tiling->tiles.push_back({box, k});
      }
    }
    check_moves(from, to, true);
  }
}

TEST(Moves, NameABoxThatNobodyHolds) {
  const Tiling from = rows(16, {{0, 4}, {4, 12}});
  const Tiling to = rows(16, {{2, 14}});
  try {
    moves(from, to);
    FAIL();
  } catch (const PlacementError& e) {
    EXPECT_NE(std::string(e.what()).find("[12:14,0:4]"), std::string::npos) << e.what();
  }
  EXPECT_THROW(moves(from, rows(15, {})), PlacementError);
}

// pytorch#149640 pytorch#163548
TEST(Moves, LookAtFewBoxesWhereManyHold) {
  for (const char* to_cut : {"S(0)", "S(1)"}) {
    int64_t before = 0;
    for (const int n : {256, 512, 1024}) {
      const auto tiling = [&](const std::string& cut) {
        return tiling_of(
            parse_layout("x=" + std::to_string(n) + ":" + cut, {4 * n + 3, 4 * n + 3}));
      };
      Tiling to = tiling(to_cut);
      if (std::string(to_cut) == "S(1)") to.tiles.resize(4);  // each takes from all
      int64_t comparisons = 0;
      moves(tiling("S(0)"), to, &comparisons);
      EXPECT_GT(comparisons, n);
      if (before != 0) {
        EXPECT_LE(static_cast<double>(comparisons), 2.5 * static_cast<double>(before));
      }
      before = comparisons;
    }
  }
}

// pytorch#189945 pytorch#126595 Megatron-LM#5077
TEST(CheckTiling, NamesTheFirstGapOrOverlap) {
  EXPECT_EQ(check_tiling(rows(16, {{0, 4}, {4, 8}, {8, 12}, {12, 16}})), "");
  EXPECT_EQ(check_tiling(rows(16, {{0, 4}, {4, 8}, {8, 12}})), "[12:16,0:4] is not covered");
  EXPECT_EQ(check_tiling(rows(16, {{0, 4}, {8, 12}, {12, 16}})), "[4:8,0:4] is not covered");
  EXPECT_EQ(check_tiling(rows(16, {{0, 4}, {4, 8}, {6, 12}, {12, 16}})),
            "[6:8,0:4] is held twice, by 1 and 2");
  EXPECT_EQ(check_tiling(rows(8, {{0, 8}, {0, 8}})), "[0:8,0:4] is held twice, by 0 and 1");
  EXPECT_NE(check_tiling(rows(8, {{0, 9}})).find("outside"), std::string::npos);
  EXPECT_EQ(check_tiling(rows(0, {})), "");
  EXPECT_EQ(check_tiling({{}, {{{{}, {}}, 3}}}), "");
  EXPECT_EQ(check_tiling({{}, {}}), "[] is not covered");
}

TEST(CheckTiling, DoesNotOverflowOnWildNumbers) {
  for (const Box& box : {Box{{INT64_MAX, 0}, {2, 4}}, Box{{-1, 0}, {2, 4}}, Box{{2, 0}, {-1, 4}},
                         Box{{0, 0}, {INT64_MAX, INT64_MAX}}, Box{{0}, {8}}}) {
    const auto fault = find_fault({{8, 4}, {{box, 5}}});
    ASSERT_TRUE(fault.has_value());
    EXPECT_EQ(fault->kind, TilingFault::Kind::kOutside);
    EXPECT_EQ(fault->holder, 5);
  }
}

TEST(CheckTiling, EveryCutWithoutReplicasTiles) {
  for (const char* text : {"a=4:S(0)", "a=2,b=3:S(0),S(0)", "a=2,b=3:S(1),S(0)",
                           "a=2,b=3:S(0),S(0);order=0:b,a;unit=0:b:2;weights=a:1,3"}) {
    for (int64_t n = 0; n < 12; ++n) {
      EXPECT_EQ(check_tiling(tiling_of(parse_layout(text, {n, 5}))), "") << text << " " << n;
    }
  }
  EXPECT_NE(check_tiling(tiling_of(parse_layout("a=2:R", {3}))), "");
}

TEST(BoxIndex, FindsWhatALoopFinds) {
  std::mt19937 random(3);
  for (int i = 0; i < 100; ++i) {
    std::vector<Box> boxes;
    for (unsigned k = random() % 40; k > 0; --k) {
      boxes.push_back({{static_cast<int64_t>(random() % 20), static_cast<int64_t>(random() % 20)},
                       {static_cast<int64_t>(random() % 6), static_cast<int64_t>(random() % 6)}});
    }
    const BoxIndex index(boxes);
    const Box query{{5, 6}, {static_cast<int64_t>(random() % 9), 7}};
    std::vector<bool> found(boxes.size(), false);
    for (const auto* entry : index.meeting(query)) {
      for (const int tile : entry->tiles) found[static_cast<size_t>(tile)] = true;
    }
    for (size_t k = 0; k < boxes.size(); ++k) {
      EXPECT_EQ(found[k], !intersect(boxes[k], query).empty() && !boxes[k].empty());
    }
  }
}

}  // namespace
}  // namespace dtensor
