#include "dtensor/placement/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace dtensor {
namespace {

MeshLayout mesh_of(std::vector<int> sizes) {
  std::vector<MeshDim> dims;
  for (size_t i = 0; i < sizes.size(); ++i) {
    dims.push_back({std::string(1, static_cast<char>('a' + i)), sizes[i], {}});
  }
  return MeshLayout(dims);
}

// Per rank, in mesh order.
std::vector<int64_t> sizes(const Layout& layout, int d = 0) {
  std::vector<int64_t> all;
  for (int i = 0; i < layout.mesh().size(); ++i) {
    all.push_back(layout.range(d, layout.mesh().coordinate_at(i)).size());
  }
  return all;
}
std::vector<int64_t> begins(const Layout& layout, int d = 0) {
  std::vector<int64_t> all;
  for (int i = 0; i < layout.mesh().size(); ++i) {
    all.push_back(layout.range(d, layout.mesh().coordinate_at(i)).begin);
  }
  return all;
}
using Sizes = std::vector<int64_t>;

// pytorch#103306 pytorch#143372 pytorch#108869
TEST(Layout, CutsEvenlyAndAllowsEmptyShards) {
  const std::vector<std::pair<int64_t, Sizes>> on4 = {
      {5, {2, 1, 1, 1}},  {6, {2, 1, 2, 1}},  {9, {3, 2, 2, 2}},
      {10, {3, 2, 3, 2}}, {11, {3, 3, 3, 2}}, {1, {1, 0, 0, 0}},
      {2, {1, 0, 1, 0}},  {3, {1, 1, 1, 0}},  {0, {0, 0, 0, 0}}};
  for (const auto& [n, want] : on4) {
    EXPECT_EQ(sizes(Layout(mesh_of({4}), {n}, {Shard(0)})), want) << n;
  }
  EXPECT_EQ(sizes(Layout(mesh_of({8}), {17}, {Shard(0)})), (Sizes{3, 2, 2, 2, 2, 2, 2, 2}));
}

// pytorch#161368 pytorch#194457
TEST(Layout, EachMeshDimCutsWhatTheOneBeforeLeft) {
  const Layout two(mesh_of({2, 4}), {2}, {Shard(0), Shard(0)});
  EXPECT_EQ(sizes(two), (Sizes{1, 0, 0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(begins(two), (Sizes{0, 1, 1, 1, 1, 2, 2, 2}));
  const Layout nine(mesh_of({2, 3}), {9}, {Shard(0), Shard(0)});
  EXPECT_EQ(sizes(nine), (Sizes{2, 2, 1, 2, 1, 1}));
  EXPECT_EQ(begins(nine), (Sizes{0, 2, 4, 5, 7, 8}));
  EXPECT_EQ(sizes(nine.with(1, Replicate())), (Sizes{5, 5, 5, 4, 4, 4}));
  const Layout five(mesh_of({2, 4}), {5}, {Shard(0), Shard(0)});
  EXPECT_EQ(sizes(five), (Sizes{1, 1, 1, 0, 1, 0, 1, 0}));
  EXPECT_EQ(begins(five), (Sizes{0, 1, 2, 3, 3, 4, 4, 5}));
}

// pytorch#129229 pytorch#129206 pytorch#163843 pytorch#168134
TEST(Layout, FsdpOverATensorParallelDimIsCutLast) {
  const MeshLayout mesh({{"dp", 2}, {"tp", 2}});
  const auto fsdp = [&](int64_t n) {
    return Layout(mesh, {n}, {Replicate(), Shard(0)}).with(0, Shard(0));
  };
  EXPECT_EQ(begins(fsdp(4)), (Sizes{0, 2, 1, 3}));  // dp0tp0, dp0tp1, dp1tp0, dp1tp1
  EXPECT_EQ(sizes(fsdp(5)), (Sizes{2, 1, 1, 1}));
  EXPECT_EQ(begins(fsdp(5)), (Sizes{0, 3, 2, 4}));
  EXPECT_EQ(sizes(fsdp(7)), (Sizes{2, 2, 2, 1}));
  EXPECT_EQ(sizes(fsdp(3)), (Sizes{1, 1, 1, 0}));
  EXPECT_EQ(sizes(fsdp(5).with(0, Replicate())), (Sizes{3, 2, 3, 2}));
  for (int64_t n = 0; n < 18; ++n) {
    EXPECT_EQ(fsdp(n), parse_layout("dp=2,tp=2:S(0),S(0);order=0:tp,dp", {n}));
  }
  const auto nine = parse_layout("dp=3,tp=2:S(0),S(0);order=0:tp,dp", {9});
  EXPECT_EQ(begins(nine), (Sizes{0, 5, 2, 7, 4, 8}));
  EXPECT_EQ(sizes(nine), (Sizes{2, 2, 2, 1, 1, 1}));
}

// pytorch#136228
TEST(Layout, UnevenFsdpOverUnevenTensorParallel) {
  const Layout w = parse_layout("dp=2,tp=2:S(0),S(0);order=0:tp,dp", {17, 8});
  EXPECT_EQ(begins(w), (Sizes{0, 9, 5, 13}));
  EXPECT_EQ(sizes(w), (Sizes{5, 4, 4, 4}));
  EXPECT_EQ(sizes(w, 1), (Sizes{8, 8, 8, 8}));
  EXPECT_EQ(sizes(w.with(0, Replicate())), (Sizes{9, 8, 9, 8}));
}

// pytorch#193224
TEST(Layout, FollowsTheOrderOfRanks) {
  const MeshLayout mesh({{"a", 2}, {"b", 2}}, {3, 1, 0, 2});
  const Layout both(mesh, {8}, {Shard(0), Shard(0)});
  const Layout second(mesh, {8}, {Replicate(), Shard(0)});
  const std::vector<std::pair<int, int64_t>> first_of = {{3, 0}, {1, 2}, {0, 4}, {2, 6}};
  for (const auto& [rank, begin] : first_of) {
    EXPECT_EQ(both.box_of(rank), (Box{{begin}, {2}}));
    EXPECT_EQ(second.box_of(rank), (Box{{rank == 3 || rank == 0 ? 0 : 4}, {4}}));
  }
  EXPECT_THROW(static_cast<void>(both.box_of(4)), ArgumentError);
}

// pytorch#169381
TEST(Layout, DimsOfSizeOneAreRealAndCutNothing) {
  const MeshLayout mesh = mesh_of({2, 1, 2, 1});
  const Layout x(mesh, {5}, {Replicate(), Shard(0), Shard(0)});
  EXPECT_EQ(sizes(x), (Sizes{3, 2, 3, 2}));
  const Layout other = Layout(mesh, {5}, {Replicate(), Replicate(), Shard(0)}).with(1, Shard(0));
  EXPECT_FALSE(x == other);
  EXPECT_TRUE(cut_alike(x, 0, other, 0));
  EXPECT_FALSE(cut_alike(x, 0, x.with(1, Replicate()), 0));
}

// vllm#50735
TEST(Layout, UnitsAndWeightsUseTheSameCut) {
  const auto cut_by = [](const char* text, int64_t n) { return sizes(parse_layout(text, {n})); };
  EXPECT_EQ(cut_by("a=4:S(0);unit=0:a:4", 24), (Sizes{8, 4, 8, 4}));
  EXPECT_EQ(cut_by("a=4:S(0);unit=0:a:4", 22), (Sizes{8, 4, 8, 2}));
  EXPECT_EQ(cut_by("a=3:S(0);unit=0:a:16", 32), (Sizes{16, 16, 0}));
  EXPECT_EQ(cut_by("a=3:S(0);unit=0:a:4", 8), (Sizes{4, 4, 0}));
  EXPECT_EQ(cut_by("a=2:S(0);weights=a:2,1", 9), (Sizes{6, 3}));
  EXPECT_EQ(cut_by("a=3:S(0);weights=a:2,1,1", 10), (Sizes{5, 3, 2}));
  EXPECT_EQ(cut_by("a=3:S(0);weights=a:1,0,1", 5), (Sizes{3, 0, 2}));
  EXPECT_EQ(cut_by("dp=2,tp=2:S(0),S(0);order=0:tp,dp;unit=0:tp:6", 30), (Sizes{9, 6, 9, 6}));
  EXPECT_EQ(cut_by("a=2,b=3:S(0),S(0);weights=a:2,1", 11), (Sizes{3, 3, 2, 1, 1, 1}));
}

// pytorch#143372: the boundaries of a view are those of its rows times the row length.
TEST(Layout, BoundariesOfUnitsMayEqualThePlainCut) {
  const Layout rows = parse_layout("a=4:S(0);unit=0:a:256", {1536});
  EXPECT_EQ(sizes(rows), (Sizes{512, 256, 512, 256}));
  EXPECT_FALSE(cut_alike(rows, 0, Layout(mesh_of({4}), {1536}, {Shard(0)}), 0));
  const Layout even = parse_layout("a=4:S(0);unit=0:a:256", {2048});
  EXPECT_TRUE(cut_alike(even, 0, Layout(mesh_of({4}), {2048}, {Shard(0)}), 0));
  EXPECT_TRUE(equal_boundaries(even, Layout(mesh_of({4}), {2048}, {Shard(0)})));
}

// pytorch#166598 pytorch#166999
TEST(Layout, CutAlikeMeansTheSameMeshDimsInTheSameOrder) {
  const Layout x = parse_layout("a=2,b=2:S(0),S(0)", {5});
  const Layout y = parse_layout("a=2,b=2:S(0),S(0);order=0:b,a", {5});
  EXPECT_EQ(to_string(x.spec()), "[a:S(0), b:S(0)]");
  EXPECT_NE(to_string(x.spec()), to_string(y.spec()));
  EXPECT_FALSE(cut_alike(x, 0, y, 0));
  EXPECT_TRUE(cut_alike(x, 0, x, 0));
  const auto with_unit = [](int64_t n) { return parse_layout("a=2:S(0);unit=0:a:2", {n}); };
  const auto plain = [](int64_t n) { return parse_layout("a=2:S(0)", {n}); };
  EXPECT_TRUE(cut_alike(with_unit(8), 0, plain(8), 0));
  EXPECT_FALSE(cut_alike(with_unit(6), 0, plain(6), 0));
  const Layout m = parse_layout("a=2,b=2:S(0),S(1)", {4, 6});
  const Layout t = parse_layout("a=2,b=2:S(1),S(0)", {6, 4});
  EXPECT_TRUE(cut_alike(m, 0, t, 1));
  EXPECT_TRUE(cut_alike(m, 1, t, 0));
  EXPECT_FALSE(cut_alike(m, 0, m, 1));
  EXPECT_FALSE(cut_alike(plain(8), 0, plain(6), 0));
  EXPECT_FALSE(cut_alike(plain(8), 0, parse_layout("b=2:S(0)", {8}), 0));
}

TEST(Layout, EqualBoundariesLookAtEveryDimAndAtPartial) {
  const Layout a = parse_layout("a=2,b=2:S(0),P(sum)", {4, 4});
  EXPECT_TRUE(equal_boundaries(a, parse_layout("a=2,b=2:S(0),P(sum);unit=0:a:2", {4, 4})));
  EXPECT_FALSE(equal_boundaries(a, parse_layout("a=2,b=2:S(0),R", {4, 4})));
  EXPECT_FALSE(equal_boundaries(a, parse_layout("a=2,b=2:S(0),P(max)", {4, 4})));
  EXPECT_FALSE(equal_boundaries(a, parse_layout("a=2,b=2:S(0),S(1)", {4, 4})));
}

TEST(Layout, HoldsScalarsAndTheMeshOfNoDims) {
  const Layout none;
  EXPECT_EQ(none.ndim(), 0);
  EXPECT_EQ(none.box(Coordinate{}).numel(), 1);
  EXPECT_EQ(to_string(none), ":");
  EXPECT_EQ(parse_layout(":", {}), none);
  EXPECT_EQ(parse_layout(":", {2, 3}).local_shape(Coordinate{}), (Shape{2, 3}));
  EXPECT_EQ(Layout::replicated(mesh_of({2}), {}).box_of(1).numel(), 1);
}

TEST(Layout, RefusesAWrongNumberOfDims) {
  const MeshLayout mesh = mesh_of({2});
  EXPECT_THROW(Layout(Spec(mesh, 2, {}), Shape{3}), ArgumentError);
  EXPECT_THROW(Layout(mesh, {-1}, {Shard(0)}), ArgumentError);
  EXPECT_THROW(Layout(mesh, {INT64_MAX, 2}, {}), ArgumentError);
  const Layout x(mesh, {3}, {Shard(0)});
  EXPECT_THROW(static_cast<void>(x.range(1, Coordinate{})), ArgumentError);
  EXPECT_THROW(static_cast<void>(x.range(-1, Coordinate{})), ArgumentError);
}

TEST(Layout, HashesWhatItCompares) {
  const std::vector<std::string> texts = {"a=2,b=2:S(0),S(0)",
                                          "a=2,b=2:S(0),S(0);order=0:b,a",
                                          "a=2,b=2:S(0),S(0);unit=0:a:2",
                                          "a=2,b=2:S(0),R",
                                          "a=2,b=2:R,S(0)",
                                          "a=2,b=2:S(0),P(sum)",
                                          "a=2,b=2:S(0),P(max)",
                                          "a=2,b=2:S(0),S(1)",
                                          "a=2,b=2@0,2,1,3:S(0),S(0)",
                                          "a=2,b=2:S(0),S(0);weights=a:1,2"};
  std::vector<Layout> all;
  for (const std::string& text : texts) {
    for (const Shape& shape : {Shape{4, 4}, Shape{4, 5}}) all.push_back(parse_layout(text, shape));
  }
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(parse_layout(to_string(all[i]), all[i].shape()).hash(), all[i].hash());
    for (size_t j = 0; j < i; ++j) {
      EXPECT_FALSE(all[i] == all[j]) << to_string(all[i]) << " " << to_string(all[j]);
      EXPECT_NE(all[i].hash(), all[j].hash()) << to_string(all[i]) << " " << to_string(all[j]);
    }
  }
}

TEST(Layout, TakesSixMeshDimsAndEightTensorDims) {
  const Layout x =
      parse_layout("a=2,b=1,c=3,d=2,e=1,f=2:S(7),S(0),S(7),P(sum),R,S(3);order=7:c,a;unit=7:c:2",
                   {2, 1, 1, 3, 1, 1, 1, 11});
  EXPECT_EQ(x.mesh().size(), 24);
  // 11 in units of 2 over c: 4,4,3; each then over a: 2,2 and 2,2 and 2,1. Of 3 over f: 2,1.
  const auto box = [&](int a, int c, int f) {
    Coordinate at;
    at.ndim = 6;
    at[0] = a;
    at[2] = c;
    at[5] = f;
    return to_string(x.box(at));
  };
  EXPECT_EQ(box(0, 0, 0), "[0:2,0:1,0:1,0:2,0:1,0:1,0:1,0:2]");
  EXPECT_EQ(box(1, 1, 0), "[0:2,0:1,0:1,0:2,0:1,0:1,0:1,6:8]");
  EXPECT_EQ(box(1, 2, 1), "[0:2,0:1,0:1,2:3,0:1,0:1,0:1,10:11]");
}

// Sizes at the end of 64 bits: nothing overflows, or what did is named.
TEST(Layout, TakesSizesNear2To62) {
  const int64_t n = int64_t{1} << 62;
  const Layout x = parse_layout("a=4,b=3:S(0),S(0);unit=0:a:4611686018427387903", {n});
  EXPECT_EQ(sizes(x), (Sizes{(n - 1) / 3, (n - 1) / 3, (n - 1) / 3, 0, 0, 0, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(to_string(x), "a=4,b=3:S(0),S(0);unit=0:a:4611686018427387903");
  EXPECT_EQ(to_string(x.box_of(6)), "[4611686018427387903:4611686018427387904]");
  const Layout last =
      parse_layout("a=3:S(0);weights=a:4611686018427387904,4611686018427387902,1", {INT64_MAX});
  EXPECT_EQ(sizes(last), (Sizes{n, n - 2, 1}));
  // A dim of size 0 beside others that do not multiply: there are no elements.
  const Layout none = parse_layout("a=2:S(0)", {n, n, 0});
  EXPECT_EQ(none.box_of(1).numel(), 0);
  EXPECT_EQ(to_string(none.box_of(1)),
            "[2305843009213693952:4611686018427387904,"
            "0:4611686018427387904,0:0]");
  EXPECT_TRUE(cut_alike(none, 0, parse_layout("a=2:S(0);unit=0:a:2", {n, n, 0}), 0));
  const auto error_of = [](const char* text, const Shape& shape) -> std::string {
    try {
      parse_layout(text, shape);
    } catch (const ArgumentError& e) {
      return e.what();
    }
    return "no ArgumentError";
  };
  EXPECT_EQ(error_of("a=2:S(0)", {n, 3}),
            "layout: shape [4611686018427387904,3] has more elements than 64 bits count");
  EXPECT_NE(error_of("a=2:S(0);weights=a:9223372036854775807,1", {n})
                .find("the weights 9223372036854775807,1 of dim \"a\" add up to more than 64 bits"),
            std::string::npos);
  EXPECT_NE(error_of("a=2:S(0);unit=0:a:9223372036854775808", {n}).find("a unit"),
            std::string::npos);
}

TEST(Box, Intersects) {
  const Box a{{0, 2}, {4, 4}};
  EXPECT_EQ(intersect(a, Box{{2, 0}, {9, 3}}), (Box{{2, 2}, {2, 1}}));
  EXPECT_TRUE(intersect(a, Box{{4, 2}, {1, 1}}).empty());
  EXPECT_EQ(to_string(a), "[0:4,2:6]");
}

TEST(LayoutText, IsReadBackAsItWasWritten) {
  for (const char* text :
       {"dp=2,tp=2@3,1,0,2:S(0),S(0);order=0:tp,dp;unit=0:tp:32;weights=tp:2,1", "x=3:R",
        "x=3:P(max)", "a=2,b=2,c=2:S(1),S(0),S(1);order=1:c,a;unit=0:b:3;unit=1:c:2",
        "a=2,b=2:S(0),R;weights=a:1,3;weights=b:0,1"}) {
    EXPECT_EQ(to_string(parse_layout(text, {60, 8})), text);
  }
  EXPECT_EQ(to_string(parse_layout("a=2,b=2:S(-1)", {4, 4})), "a=2,b=2:S(1),R");
  EXPECT_EQ(parse_layout("a=2,b=2:S(0),S(0);order=-1:b,a", {4}),
            parse_layout("a=2,b=2:S(0),S(0);order=0:b,a", {4}));
}

TEST(LayoutText, MissingPlacementsAreReplicate) {
  for (const char* text : {"a=2,b=2:", "a=2,b=2:R", "a=2,b=2:;weights=b:1,1"}) {
    EXPECT_EQ(to_string(parse_layout(text, {4})), "a=2,b=2:R,R") << text;
  }
}

TEST(LayoutText, ErrorsShowTheSpot) {
  const auto error_of = [](const char* text) -> std::string {
    try {
      parse_layout(text, {8, 4});
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_NE(error_of("dp=2:X").find("character 6, found \"X\""), std::string::npos);
  EXPECT_NE(error_of("dp=2").find("expected ':'"), std::string::npos);
  EXPECT_NE(error_of("dp=2:,R").find("a placement"), std::string::npos);
  EXPECT_NE(error_of("dp=2@-1:R").find("rank -1; ranks are 0 to 2147483646"), std::string::npos);
  EXPECT_NE(error_of("dp=1@2147483647:R").find("rank 2147483647;"), std::string::npos);
  EXPECT_NE(error_of("dp=2@3-2:R").find("ranks 3 to 2;"), std::string::npos);
  EXPECT_NE(error_of("dp=2:R,R").find("2 placements"), std::string::npos);
  EXPECT_NE(error_of("dp=2:S(2)").find("Shard(2)"), std::string::npos);
  EXPECT_NE(error_of("dp=2:R;size=3").find("\"size\" is no key"), std::string::npos);
  EXPECT_NE(error_of("dp=2:R;unit=0:dp:2").find("does not cut"), std::string::npos);
  EXPECT_NE(error_of("dp=2:S(0);unit=0:dp:0").find("unit=0:dp:0; a unit is 1 or more"),
            std::string::npos);
  EXPECT_NE(error_of("dp=2:S(0);unit=0:dp:1;unit=0:dp:4").find("unit=0:dp is given twice"),
            std::string::npos);
  EXPECT_NE(error_of("dp=2:S(0);unit=0:dp:2;unit=0:dp:4").find("unit=0:dp is given twice"),
            std::string::npos);
  EXPECT_NE(error_of("a=2,b=2:S(0),S(0);order=0:b,a;order=-2:a,b").find("order=-2 is given twice"),
            std::string::npos);
  EXPECT_NE(error_of("dp=2:S(0);unit=5:dp:2").find("unit=5"), std::string::npos);
  EXPECT_NE(error_of("dp=2:S(0);unit=0:tp:2").find("\"tp\""), std::string::npos);
  EXPECT_NE(error_of("dp=2:S(0);order=0:dp,dp").find("once"), std::string::npos);
  EXPECT_NE(error_of("dp=2,tp=2:S(0),S(0);order=0:dp").find("once"), std::string::npos);
  EXPECT_NE(error_of("dp=2:R;weights=tp:1,1").find("no mesh dim"), std::string::npos);
  EXPECT_NE(error_of("dp=2:R;weights=dp:1,1;weights=dp:1,1").find("twice"), std::string::npos);
  EXPECT_NE(error_of("dp=2:R;weights=dp:1").find("1 weights"), std::string::npos);
  EXPECT_NE(error_of("dp=2:R x").find("expected the end"), std::string::npos);
}

TEST(LayoutText, MutatedTextGivesALayoutOrAnError) {
  const std::string good = "dp=2,tp=2@3,1,0,2:S(0),S(0);order=0:tp,dp;unit=0:tp:32;weights=tp:2,1";
  std::mt19937 random(11);
  int read = 0;
  for (int i = 0; i < 30000; ++i) {
    std::string text = good;
    for (unsigned n = random() % 5; n > 0; --n) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = "dtp=,@-0123456789:;S()RPsumorderunitweights"[random() % 43];
          break;
        case 1:
          text.erase(at, random() % 6 + 1);
          break;
        case 2: {
          const size_t from = random() % text.size();
          text.insert(at, text.substr(from, random() % 12));
          break;
        }
        default:
          text.insert(at, 1, static_cast<char>(random() % 256));
      }
      if (text.empty()) text = ":";
    }
    try {
      const Layout layout = parse_layout(text, {INT64_MAX / 4, 3});
      ++read;
      EXPECT_EQ(parse_layout(to_string(layout), layout.shape()), layout) << text;
      for (int r = 0; r < std::min(layout.mesh().size(), 64); ++r) {
        const Box box = layout.box(layout.mesh().coordinate_at(r));
        for (int d = 0; d < 2; ++d) {
          EXPECT_GE(box.offset[d], 0);
          EXPECT_GE(box.size[d], 0);
          EXPECT_LE(box.offset[d] + box.size[d], layout.shape()[d]);
        }
      }
    } catch (const Error&) {
    }
  }
  EXPECT_GT(read, 1000);
}

}  // namespace
}  // namespace dtensor
