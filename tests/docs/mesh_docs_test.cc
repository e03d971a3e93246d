// The code of docs/mesh.md.

#include <gtest/gtest.h>

#include <vector>

#include "dtensor/mesh/device_mesh.h"
#include "dtensor/mesh/mesh_layout.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

void names_the_dims_of_a_mesh(comm::Comm& world) {
  const DeviceMesh mesh(world, {{"dp", 2}, {"tp", 2}});
  EXPECT_EQ(mesh.size("tp"), 2);
  EXPECT_EQ(mesh.coordinate("dp"), world.rank() / 2);
  EXPECT_EQ(mesh["tp"].dims, std::vector<int>{1});
  EXPECT_EQ(to_string(mesh.layout()), "dp=2,tp=2");
  const DeviceMesh turned(world, {{"dp", 2}, {"tp", 2}}, {3, 1, 0, 2});
  EXPECT_EQ(turned.layout().group(Coordinate{{0, 0}, 2}, std::vector<int>{0}),
            (std::vector<int>{3, 0}));
  EXPECT_FALSE(mesh == turned);
}

TEST(MeshDocs, NamesTheDimsOfAMesh) { testing::run_ranks(4, names_the_dims_of_a_mesh); }

}  // namespace
}  // namespace dtensor
