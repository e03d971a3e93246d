#include "dtensor/placement/holders.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "dtensor/tests/support/error_of.h"

namespace dtensor {
namespace {

using Ranks = std::vector<int>;

bool holds(const Box& box, const Shape& index) {
  for (int d = 0; d < index.ndim(); ++d) {
    if (index[d] < box.offset[d] || index[d] >= box.offset[d] + box.size[d]) return false;
  }
  return true;
}

// By asking every rank of the mesh.
Ranks holders_by_walk(const Layout& layout, const Shape& index) {
  Ranks ranks;
  for (const int rank : layout.mesh().ranks()) {
    if (holds(layout.box_of(rank), index)) ranks.push_back(rank);
  }
  return ranks;
}
// The ranks of the same box; of an empty one, that also are at the same coordinates of the cuts.
Ranks replicas_by_walk(const Layout& layout, int of) {
  const MeshLayout& mesh = layout.mesh();
  const Box box = layout.box_of(of);
  const auto is_same_part = [&](int rank) {
    for (int m = 0; box.empty() && m < mesh.ndim(); ++m) {
      const bool cuts = layout.placement(m).is_shard();
      if (cuts && (*mesh.coordinate_of(rank))[m] != (*mesh.coordinate_of(of))[m]) return false;
    }
    return layout.box_of(rank) == box;
  };
  Ranks ranks;
  std::ranges::copy_if(mesh.ranks(), std::back_inserter(ranks), is_same_part);
  return ranks;
}

std::string error_of(const Layout& layout, const Shape& index) {
  return testing::error_of<ArgumentError>([&] { holders(layout, index); });
}

TEST(Holders, AreOnePerCoordinateOfTheDimsThatDoNotCut) {
  const Layout x = parse_layout("a=2,b=2@3,1,0,2:R,S(0)", {8});
  EXPECT_EQ(holders(x, {3}), (Ranks{3, 0}));
  EXPECT_EQ(holders(x, {4}), (Ranks{1, 2}));
  EXPECT_EQ(replicas(x, 0), (Ranks{3, 0}));
  const Layout term = parse_layout("a=2,b=2:P(sum),S(0)", {8});
  EXPECT_EQ(holders(term, {7}), (Ranks{1, 3})) << "each holds a term";
  EXPECT_EQ(holders(parse_layout("a=2,b=2:R,P(max)", {}), {}), (Ranks{0, 1, 2, 3}));
  EXPECT_EQ(holders(Layout(), {}), Ranks{0});
  EXPECT_EQ(replicas(Layout(), 0), Ranks{0});
}

TEST(Replicas, OfAnEmptyPartAreThoseOfItsCoordinatesOnly) {
  const Layout two = parse_layout("a=2,b=4:S(0),S(0)", {2});  // 1,0,0,0 and 1,0,0,0
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(replicas(two, rank), Ranks{rank});
  EXPECT_EQ(replicas(parse_layout("a=3:S(1)", {4, 0}), 1), Ranks{1});
  EXPECT_EQ(replicas(parse_layout("a=3,b=2:S(0),R", {1}), 4), (Ranks{4, 5}));
  EXPECT_EQ(replicas(parse_layout("a=3,b=2:P(sum),S(0)", {1}), 3), (Ranks{1, 3, 5}));
}

TEST(Holders, RefuseWhatIsNotThere) {
  const Layout x = parse_layout("a=2:S(0)", {4, 3});
  EXPECT_EQ(error_of(x, {4, 0}), "holders: a tensor of shape [4,3] has no element [4,0]");
  EXPECT_NE(error_of(x, {0, -1}).find("[0,-1]"), std::string::npos);
  EXPECT_NE(error_of(x, {0}).find("[0]"), std::string::npos);
  EXPECT_NE(error_of(parse_layout("a=2:S(0)", {0}), {0}).find("no element"), std::string::npos);
  EXPECT_EQ(testing::error_of<ArgumentError>([&] { replicas(x, 2); }),
            "replicas: rank 2 is not in the mesh \"a=2\"");
}

TEST(Holders, AreThoseThatAWalkFindsOnRandomLayouts) {
  std::mt19937 random(31);
  const std::vector<MeshLayout> meshes = {
      MeshLayout({{"a", 4}}), MeshLayout({{"a", 2}, {"b", 3}}, {5, 3, 1, 0, 2, 9}),
      MeshLayout({{"a", 3, {1, 0, 2}}, {"b", 1}, {"c", 4, {0, 0, 1, 0}}}),
      MeshLayout({{"a", 2}, {"b", 1}, {"c", 2}, {"d", 3}, {"e", 1}, {"f", 2}})};
  const std::vector<Shape> shapes = {{}, {1}, {5}, {13}, {3, 4}, {0, 3}, {2, 1, 3}};
  for (int i = 0; i < 1500; ++i) {
    const MeshLayout& mesh = meshes[random() % meshes.size()];
    const Shape& shape = shapes[random() % shapes.size()];
    Layout layout = Layout::replicated(mesh, shape);
    for (int n = mesh.ndim(); n > 0; --n) {
      const int m = static_cast<int>(random() % static_cast<unsigned>(mesh.ndim()));
      const auto kind = random() % 4;
      if (kind == 0) layout = layout.with(m, Partial());
      if (kind == 1 || shape.ndim() == 0) continue;
      const int d = static_cast<int>(random() % static_cast<unsigned>(shape.ndim()));
      layout = layout.with(m, Shard(d), static_cast<int64_t>(random() % 3 + 1));
    }
    for (const int rank : mesh.ranks()) {
      EXPECT_EQ(replicas(layout, rank), replicas_by_walk(layout, rank)) << to_string(layout);
    }
    if (shape.numel() == 0) continue;
    Shape index = shape;
    for (int64_t& at : index) at = static_cast<int64_t>(random() % static_cast<uint64_t>(at));
    EXPECT_EQ(holders(layout, index), holders_by_walk(layout, index)) << to_string(layout);
  }
}

// 2^20 ranks and nearly 2^62 elements: a walk over the mesh for each of these would be seen.
TEST(Holders, AreFoundOnHugeMeshesAndTensors) {
  const int64_t n = (int64_t{1} << 62) - 1;
  const MeshLayout mesh({{"a", 1024}, {"b", 1024}});
  const Layout x(mesh, {n}, {Shard(0), Shard(0)});
  for (int rank = 0; rank < mesh.size(); rank += 1023) {
    const Box box = x.box_of(rank);
    EXPECT_EQ(holders(x, box.offset), Ranks{rank});
    EXPECT_EQ(holders(x, {box.offset[0] + box.size[0] - 1}), Ranks{rank});
    EXPECT_EQ(replicas(x, rank), Ranks{rank});
  }
}

}  // namespace
}  // namespace dtensor
