#include "dtensor/placement/overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/tests/placement/random_layouts.h"

namespace dtensor {
namespace {

using test::random_layout;
using test::small_meshes;
using test::small_shapes;

// Over all ranks, box by box.
int64_t counted(const std::vector<const Layout*>& layouts, MeshDimSet pinned) {
  const MeshLayout& mesh = layouts[0]->mesh();
  int64_t all = 0;
  for (int i = 0; i < mesh.size(); ++i) {
    const Coordinate at = mesh.coordinate_at(i);
    bool counts = true;
    for (int m = 0; m < mesh.ndim(); ++m) counts &= !pinned.contains(m) || at[m] == 0;
    if (!counts) continue;
    Box box = layouts[0]->box(at);
    for (const Layout* layout : layouts) box = intersect(box, layout->box(at));
    all += box.numel();
  }
  return all;
}

TEST(CommonElements, IsWhatALoopOverTheRanksCounts) {
  std::mt19937 random(8);
  for (int i = 0; i < 4000; ++i) {
    const MeshLayout& mesh = small_meshes()[random() % small_meshes().size()];
    const Shape& shape = small_shapes()[random() % small_shapes().size()];
    const Layout a = random_layout(mesh, shape, random);
    const Layout b = random_layout(mesh, shape, random);
    const Layout c = random_layout(mesh, shape, random);
    for (const auto& layouts : {std::vector{&a}, std::vector{&a, &b}, std::vector{&a, &b, &c}}) {
      MeshDimSet pinned;
      for (int m = 0; m < mesh.ndim(); ++m) {
        const bool cuts =
            std::ranges::any_of(layouts, [&](auto* l) { return l->placement(m).is_shard(); });
        if (!cuts && random() % 3 == 0) pinned.add(m);
      }
      EXPECT_EQ(static_cast<int64_t>(common_elements(layouts, pinned)), counted(layouts, pinned))
          << to_string(a) << " | " << to_string(b) << " | " << to_string(c) << to_string(shape)
          << layouts.size();
    }
  }
}

// So many coordinates that sums are remembered.
TEST(CommonElements, IsTheSameOnMeshesThatAreTooLargeToGoThrough) {
  std::mt19937 random(10);
  const MeshLayout mesh({{"a", 9}, {"b", 8}, {"c", 7}});
  for (int i = 0; i < 300; ++i) {
    const Shape shape = i % 2 == 0 ? Shape{1009} : Shape{101, 67};
    const Layout a = random_layout(mesh, shape, random);
    const Layout b = random_layout(mesh, shape, random);
    const Layout c = random_layout(mesh, shape, random);
    const std::vector layouts{&a, &b, &c};
    EXPECT_EQ(static_cast<int64_t>(common_elements(layouts)), counted(layouts, {}))
        << to_string(a) << " | " << to_string(b) << " | " << to_string(c) << to_string(shape);
  }
}

TEST(CommonElements, DoesNotGoThroughEvenPartsOrWhatNestsAlike) {
  const MeshLayout mesh({{"a", 1024}, {"b", 64}});
  const Shape shape{1 << 20, 3 << 20};
  const auto common = [&](const char* from, const char* to) {
    const Layout a = parse_layout(std::string("a=1024,b=64:") + from, shape);
    const Layout b = parse_layout(std::string("a=1024,b=64:") + to, shape);
    int64_t visited = 0;
    common_elements(std::vector{&a, &b}, {}, &visited);
    return visited;
  };
  EXPECT_EQ(common("S(0),S(1)", "R,S(1)"), 0);
  EXPECT_LT(common("S(0),S(1)", "S(1),S(0)"), 32768);  // each a meets few b: 65,536 ranks
  EXPECT_EQ(common("S(0),R", "S(0),S(0)"), 0);
}

TEST(CommonElements, CountsMoreThan64Bits) {
  const Layout a = parse_layout("x=8:R", {int64_t{1} << 61});
  EXPECT_TRUE(common_elements(std::vector{&a}) == ElementCount{1} << 64);
}

TEST(HeldOf, FindsWhatALoopOverTheRanksFinds) {
  std::mt19937 random(9);
  for (int i = 0; i < 2000; ++i) {
    const MeshLayout& mesh = small_meshes()[random() % small_meshes().size()];
    const Shape& shape = small_shapes()[random() % small_shapes().size()];
    const Layout layout = random_layout(mesh, shape, random);
    Box box{shape, shape};
    for (int d = 0; d < shape.ndim(); ++d) {
      box.offset[d] = static_cast<int64_t>(random() % static_cast<unsigned>(shape[d] + 1));
      box.size[d] =
          static_cast<int64_t>(random() % static_cast<unsigned>(shape[d] - box.offset[d] + 1));
    }
    MeshDimSet free;
    for (int m = 0; m < mesh.ndim(); ++m) {
      if (random() % 3 != 0) free.add(m);
    }
    const Coordinate fixed = mesh.coordinate_at(static_cast<int>(random() % mesh.ranks().size()));
    const auto found = held_of(layout, box, fixed, free);
    size_t count = 0;
    for (int r = 0; r < mesh.size(); ++r) {
      const Coordinate at = mesh.coordinate_at(r);
      bool asked = true;
      for (int m = 0; m < mesh.ndim(); ++m) asked &= free.contains(m) || at[m] == fixed[m];
      const Box held = intersect(box, layout.box(at));
      if (!asked || held.empty()) continue;
      ++count;
      EXPECT_EQ(
          std::ranges::count_if(found, [&](const Held& h) { return h.at == at && h.box == held; }),
          1);
    }
    EXPECT_EQ(found.size(), count);
  }
}

}  // namespace
}  // namespace dtensor
