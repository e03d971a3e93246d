// Who writes what: every element exactly once, whatever the layout.

#include "dtensor/checkpoint/ownership.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "dtensor/base/error.h"

namespace dtensor::checkpoint {
namespace {

// How often each element is written, by a plain count.
std::vector<int> written(const Layout& layout, DType dtype, std::string_view name, int world) {
  const Shape& shape = layout.shape();
  std::vector<int> counts(static_cast<size_t>(shape.numel()), 0);
  const Shape strides = contiguous_strides(shape);
  for (int rank = 0; rank < world; ++rank) {
    const auto box = box_to_write(name, dtype, layout, rank);
    if (!box) continue;
    for (int64_t i = 0; i < box->numel(); ++i) {
      int64_t rest = i;
      int64_t at = 0;
      for (int d = shape.ndim() - 1; d >= 0; --d) {
        at += (box->offset[d] + rest % box->size[d]) * strides[d];
        rest /= box->size[d];
      }
      ++counts[static_cast<size_t>(at)];
    }
  }
  return counts;
}

TEST(Ownership, EveryElementIsWrittenOnce) {
  const std::vector<Placement> kinds = {Replicate(), Shard(0), Shard(1)};
  for (const MeshLayout& mesh :
       {MeshLayout({{"a", 2}, {"b", 3}}), MeshLayout({{"a", 2, {3, 1}}, {"b", 2}}, {3, 5, 0, 2}),
        MeshLayout({{"a", 4}, {"b", 1}})}) {
    for (const Shape& shape :
         {Shape{5, 3}, Shape{1, 2}, Shape{0, 3}, Shape{300, 101}, Shape{1, 40000}}) {
      for (const Placement a : kinds) {
        for (const Placement b : kinds) {
          const Layout layout(mesh, shape, {a, b});
          for (const char* name : {"w", "model.layers.0.weight", ""}) {
            const auto counts = written(layout, DType::kFloat64, name, 6);
            EXPECT_EQ(counts, std::vector<int>(counts.size(), 1)) << to_string(layout);
          }
        }
      }
    }
  }
}

TEST(Ownership, LargeReplicasAreSharedByRows) {  // torchtitan#709
  const Layout layout(MeshLayout({{"x", 3}}), {256, 64}, {Replicate()});
  const std::vector<int64_t> want = {86, 85, 85};  // 64 KiB: just enough
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(box_to_write("w", DType::kFloat32, layout, r)->size[0], want[static_cast<size_t>(r)]);
  }
  int writers = 0;
  for (int r = 0; r < 3; ++r) {
    const auto box = box_to_write("w", DType::kBFloat16, layout, r);
    if (box) {
      EXPECT_EQ(box->size, (Shape{256, 64}));
    }
    writers += box ? 1 : 0;
  }
  EXPECT_EQ(writers, 1);
}

TEST(Ownership, SomebodyNamesATensorWithoutElements) {
  const Layout layout(MeshLayout({{"x", 3}}, {2, 0, 4}), {0, 5}, {Shard(0)});
  int writers = 0;
  for (int r = 0; r < 6; ++r) writers += box_to_write("w", DType::kFloat32, layout, r) ? 1 : 0;
  EXPECT_EQ(writers, 1);
}

TEST(Ownership, RefusesPartialByName) {
  const Layout layout(MeshLayout({{"x", 2}}), {4}, {Partial()});
  try {
    box_to_write("model.w", DType::kFloat32, layout, 0);
    FAIL();
  } catch (const PlacementError& e) {
    EXPECT_NE(std::string(e.what()).find("model.w"), std::string::npos);
  }
}

}  // namespace
}  // namespace dtensor::checkpoint
