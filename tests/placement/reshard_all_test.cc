// All source x destination placements, against simulated holders.

#include <gtest/gtest.h>

#include <vector>

#include "dtensor/tests/placement/plan_tally.h"
#include "dtensor/tests/placement/random_layouts.h"

namespace dtensor {
namespace {

using test::all_layouts;
using test::Tally;

// All shapes of up to `ndim` dims, each of `sizes`.
std::vector<Shape> all_shapes(int ndim, const std::vector<int64_t>& sizes) {
  std::vector<Shape> all{Shape{}};
  size_t begin = 0;
  for (int d = 0; d < ndim; ++d) {
    const size_t end = all.size();
    for (; begin < end; ++begin) {
      for (const int64_t size : sizes) {
        Shape shape = all[begin];
        shape.push_back(size);
        all.push_back(shape);
      }
    }
  }
  return all;
}

class On1dMesh : public testing::TestWithParam<int> {};

TEST_P(On1dMesh, MovesEveryPairOfEveryShapeOfUpToThreeDimsOfUpTo7) {
  Tally tally;
  const MeshLayout mesh({{"x", GetParam()}});
  for (const Shape& shape : all_shapes(3, {0, 1, 2, 3, 4, 5, 6, 7})) {
    tally.check_pairs(all_layouts(mesh, shape));
  }
  tally.print("1-D");
  EXPECT_EQ(tally.above_minimum, 0);
}
INSTANTIATE_TEST_SUITE_P(Sizes, On1dMesh, testing::Range(1, 8));

class On2dMesh : public testing::TestWithParam<std::pair<int, int>> {};

TEST_P(On2dMesh, MovesEveryPairInEveryOrder) {
  Tally tally;
  const auto [a, b] = GetParam();
  const MeshLayout mesh({{"a", a}, {"b", b}});
  for (const PartialOp op : {PartialOp::kSum, PartialOp::kMin, PartialOp::kMax, PartialOp::kProd}) {
    for (const Shape& shape : all_shapes(2, {0, 1, 2, 3, 5, 7})) {
      tally.check_pairs(all_layouts(mesh, shape, op));
    }
  }
  tally.print("2-D");
  EXPECT_LE(tally.worst, 1.5);
  EXPECT_LE(tally.worst_exchanged, 2);
}
INSTANTIATE_TEST_SUITE_P(Sizes, On2dMesh,
                         testing::Values(std::pair(2, 2), std::pair(2, 3), std::pair(3, 2),
                                         std::pair(1, 4)));

TEST(Samples, MoveOn3dMeshesWithUnitsAndWeights) {
  Tally tally;
  tally.check_samples(3, 7, 20000);
  tally.print("3-D");
  EXPECT_GT(tally.of_one_dim, 0);
  EXPECT_LE(tally.worst, 1.5);
  EXPECT_LE(tally.worst_exchanged, 2);
}

TEST(Samples, MoveOn6dMeshesWithUnits) {
  Tally tally;
  tally.check_samples(6, 8, 5000);
  tally.print("6-D");
  EXPECT_LE(tally.worst, 1.6);
  EXPECT_LE(tally.worst_exchanged, 2);
}

TEST(Samples, MoveBetweenMeshes) {
  Tally tally;
  tally.check_samples_between_meshes(72, 20000);
  tally.print("between meshes");
  EXPECT_LE(tally.worst, 2);
}

}  // namespace
}  // namespace dtensor
