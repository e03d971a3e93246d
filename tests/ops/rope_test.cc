#include "dtensor/ops/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two positions, turned by 0 and by 90 degrees: (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin).
const Tensor& cosines() {
  static const Tensor t = floats({1, 1, 0, 0, -1, -1}, {3, 2});
  return t;
}
const Tensor& sines() {
  static const Tensor t = floats({0, 0, 1, 1, 0, 0}, {3, 2});
  return t;
}

TEST(Rope, SlicesItsTablesForACutSequence) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"sp", 2}});
    const DTensor x = leaf(floats({1, 2, 3, 4, 5, 6}, {1, 3, 2}), mesh, {Shard(1)});
    const DTensor c = distribute(cosines(), mesh, {Replicate()});
    const DTensor s = distribute(sines(), mesh, {Replicate()});
    const DTensor y = rope(x, c, s);
    EXPECT_EQ(y.spec().placement(0), Shard(1));
    EXPECT_EQ(moved_bytes(), 0);
    EXPECT_THAT(whole(y), ElementsAre(1, 2, -4, 3, -5, -6));
    sum(y).backward();
    EXPECT_THAT(whole(x.grad()), ElementsAre(1, 1, 1, -1, -1, -1));
  });
}

TEST(Rope, RefusesTablesThatWantAGradientOrLieOnNoMesh) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"sp", 2}});
    const DTensor x = distribute(counted({1, 3, 2}), mesh, {Replicate()});
    const DTensor c = leaf(cosines(), mesh, {Replicate()});
    const DTensor s = distribute(sines(), mesh, {Replicate()});
    EXPECT_THROW(rope(x, c, s), ArgumentError);
    EXPECT_THAT(placement_error([&] { rope(x, DTensor(cosines()), DTensor(sines())); }),
                HasSubstr("use replicate(cos, mesh)"));
  });
}

}  // namespace
}  // namespace dtensor
