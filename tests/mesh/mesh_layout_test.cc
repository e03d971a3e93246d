#include "dtensor/mesh/mesh_layout.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>
#include <string>

namespace dtensor {
namespace {

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const ArgumentError& e) {
    return e.what();
  }
  return "no ArgumentError";
}

TEST(MeshLayout, FillsRowMajorWithCountingRanks) {
  const MeshLayout mesh({{"dp", 2}, {"tp", 3}});
  EXPECT_EQ(mesh.ndim(), 2);
  EXPECT_EQ(mesh.size(), 6);
  EXPECT_EQ(mesh.size(1), 3);
  EXPECT_EQ(mesh.name(0), "dp");
  EXPECT_EQ(mesh.dim("tp"), 1);
  int rank = 0;
  for (int d = 0; d < 2; ++d) {
    for (int t = 0; t < 3; ++t, ++rank) {
      const Coordinate at = *mesh.coordinate_of(rank);
      EXPECT_EQ(at[0], d);
      EXPECT_EQ(at[1], t);
      EXPECT_EQ(mesh.rank_at(at), rank);
      EXPECT_EQ(mesh.coordinate_at(rank), at);
    }
  }
  EXPECT_FALSE(mesh.coordinate_of(6).has_value());
  EXPECT_FALSE(mesh.contains(-1));
}

// pytorch#193224
TEST(MeshLayout, KeepsTheRankOrderThatItWasGiven) {
  const MeshLayout mesh({{"a", 2}, {"b", 2}}, {3, 1, 0, 2});
  const auto group = [&](int rank, std::vector<int> dims) {
    return mesh.group(*mesh.coordinate_of(rank), dims);
  };
  for (const int rank : {3, 0}) EXPECT_EQ(group(rank, {0}), (std::vector<int>{3, 0}));
  for (const int rank : {1, 2}) EXPECT_EQ(group(rank, {0}), (std::vector<int>{1, 2}));
  for (const int rank : {3, 1}) EXPECT_EQ(group(rank, {1}), (std::vector<int>{3, 1}));
  for (const int rank : {0, 2}) EXPECT_EQ(group(rank, {1}), (std::vector<int>{0, 2}));
  EXPECT_EQ(group(0, {0, 1}), (std::vector<int>{3, 1, 0, 2}));
  EXPECT_EQ(group(0, {1, 0}), (std::vector<int>{3, 0, 1, 2}));
  EXPECT_EQ(group(2, {}), (std::vector<int>{2}));
  EXPECT_FALSE(mesh == MeshLayout({{"a", 2}, {"b", 2}}));
  EXPECT_EQ(mesh, MeshLayout({{"a", 2}, {"b", 2}}, {3, 1, 0, 2}));
}

// pytorch#169381
TEST(MeshLayout, TakesDimsOfSizeOne) {
  const MeshLayout mesh({{"a", 2}, {"b", 1}, {"c", 2}, {"d", 1}});
  const std::vector<int> bc = {1, 2};
  EXPECT_EQ(mesh.group(*mesh.coordinate_of(0), bc), (std::vector<int>{0, 1}));
  EXPECT_EQ(mesh.group(*mesh.coordinate_of(3), bc), (std::vector<int>{2, 3}));
}

TEST(MeshLayout, WithoutDimsHasOneHolder) {
  const MeshLayout none;
  EXPECT_EQ(none.ndim(), 0);
  EXPECT_EQ(none.size(), 1);
  EXPECT_EQ(none.ranks(), std::vector<int>{0});
  EXPECT_EQ(none.rank_at(Coordinate{}), 0);
  EXPECT_EQ(none, MeshLayout(std::vector<MeshDim>{}));
  EXPECT_EQ(to_string(none), "");
  EXPECT_EQ(parse_mesh(""), none);
}

TEST(MeshLayout, ComparesNamesSizesWeightsAndRanks) {
  const MeshLayout mesh({{"a", 2}, {"b", 2, {2, 1}}});
  EXPECT_EQ(mesh, MeshLayout({{"a", 2}, {"b", 2, {2, 1}}}));
  EXPECT_EQ(mesh.hash(), MeshLayout({{"a", 2}, {"b", 2, {2, 1}}}).hash());
  EXPECT_FALSE(mesh == MeshLayout({{"a", 2}, {"b", 2}}));
  EXPECT_FALSE(mesh == MeshLayout({{"a", 2}, {"c", 2, {2, 1}}}));
  EXPECT_FALSE(mesh == MeshLayout({{"a", 2}, {"b", 2, {2, 1}}}, {0, 1, 2, 7}));
  EXPECT_FALSE(MeshLayout({{"a", 2}, {"b", 3}}) == MeshLayout({{"a", 3}, {"b", 2}}));
  // Equal weights are none.
  const MeshLayout plain({{"a", 2}, {"b", 2}});
  EXPECT_EQ(plain, MeshLayout({{"a", 2, {1, 1}}, {"b", 2, {5, 5}}}));
  EXPECT_EQ(plain.hash(), MeshLayout({{"a", 2, {1, 1}}, {"b", 2, {5, 5}}}).hash());
  EXPECT_TRUE(MeshLayout({{"a", 1, {3}}}).weights(0).empty());
}

TEST(MeshLayout, RefusesWhatIsNoMesh) {
  EXPECT_NE(error_of([] { MeshLayout({{"a", 0}}); }).find("size 0"), std::string::npos);
  EXPECT_NE(error_of([] { MeshLayout({{"a", 2}, {"a", 2}}); }).find("\"a\""), std::string::npos);
  EXPECT_NE(error_of([] { MeshLayout({{"2a", 2}}); }).find("no name"), std::string::npos);
  EXPECT_NE(error_of([] { MeshLayout({{"", 2}}); }).find("no name"), std::string::npos);
  EXPECT_NE(error_of([] { MeshLayout({{"a", 2}}, {0}); }).find("1 ranks"), std::string::npos);
  EXPECT_NE(error_of([] { MeshLayout({{"a", 2}}, {3, 3}); }).find("rank 3"), std::string::npos);
  EXPECT_NE(error_of([] { MeshLayout({{"a", 2}}, {0, -1}); }).find("-1"), std::string::npos);
  EXPECT_NE(error_of([] { MeshLayout({{"a", 2, {1}}}); }).find("weights"), std::string::npos);
  EXPECT_NE(error_of([] { MeshLayout({{"a", 2, {0, 0}}}); }).find("0,0"), std::string::npos);
  EXPECT_NE(error_of([] { MeshLayout({{"a", 2, {3, -1}}}); }).find("-1"), std::string::npos);
  EXPECT_NE(error_of([] {
              MeshLayout({{"a", 2, {INT64_MAX, 1}}});
            }).find("64 bits"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              MeshLayout({{"a", 1 << 12}, {"b", 1 << 12}});
            }).find("more than"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              MeshLayout({{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}, {"e", 1}, {"f", 1}, {"g", 1}});
            }).find("at most 6"),
            std::string::npos);
  const MeshLayout mesh({{"dp", 2}, {"tp", 2}});
  const std::string text = error_of([&] { static_cast<void>(mesh.dim("pp")); });
  EXPECT_NE(text.find("dp=2,tp=2"), std::string::npos);
  EXPECT_NE(text.find("\"pp\""), std::string::npos);
  const std::vector<int> twice = {1, 1};
  EXPECT_THROW(static_cast<void>(mesh.group(mesh.coordinate_at(0), twice)), ArgumentError);
  const std::vector<int> outside = {2};
  EXPECT_THROW(static_cast<void>(mesh.group(mesh.coordinate_at(0), outside)), ArgumentError);
}

TEST(MeshText, IsReadBackAsItWasWritten) {
  for (const char* text : {"dp=2,tp=2", "dp=2,tp=2@3,1,0,2", "x=4@4-7", "x=5@9,0-2,7", "a.b-c_1=3",
                           "a=1,b=1,c=1,d=1,e=1,f=1"}) {
    EXPECT_EQ(to_string(parse_mesh(text)), text);
  }
  EXPECT_EQ(to_string(parse_mesh("x=4@0-3")), "x=4");
  EXPECT_EQ(parse_mesh("x=4@4,5,6,7"), parse_mesh("x=4@4-7"));
}

TEST(MeshText, ErrorsShowTheSpot) {
  EXPECT_NE(error_of([] { parse_mesh("dp=2,tp=x"); }).find("character 9, found \"x\""),
            std::string::npos);
  EXPECT_NE(error_of([] { parse_mesh("dp=2,"); }).find("found the end"), std::string::npos);
  EXPECT_NE(error_of([] { parse_mesh("dp=2@1-"); }).find("last rank"), std::string::npos);
  EXPECT_NE(error_of([] { parse_mesh("dp=2@3-1"); }).find("3 to 1"), std::string::npos);
  EXPECT_NE(error_of([] { parse_mesh("dp=2 "); }).find("expected the end"), std::string::npos);
  EXPECT_THROW(parse_mesh("dp=99999999999999999999"), ArgumentError);
  EXPECT_THROW(parse_mesh("dp=2@0-4611686018427387904"), ArgumentError);
}

TEST(MeshText, MutatedTextGivesAMeshOrAnError) {
  const std::string good = "dp=2,tp=3@4-7,0,9";
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string text = good;
    for (unsigned n = random() % 4 + 1; n > 0; --n) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = "dtp=,@-0123456789:;S"[random() % 20];
          break;
        case 1:
          text.erase(at, 1);
          break;
        default:
          text.insert(at, 1, static_cast<char>(random() % 256));
      }
      if (text.empty()) text = "x";
    }
    try {
      const MeshLayout mesh = parse_mesh(text);
      EXPECT_EQ(parse_mesh(to_string(mesh)), mesh) << text;
      EXPECT_EQ(std::set<int>(mesh.ranks().begin(), mesh.ranks().end()).size(),
                static_cast<size_t>(mesh.size()));
    } catch (const ArgumentError&) {
    }
  }
}

}  // namespace
}  // namespace dtensor
