// @dtensor//placement alone: which rows does each of four ranks hold? Links no communication.

#include <cstdio>

#include "dtensor/placement/layout.h"

int main() {
  using namespace dtensor;
  const MeshLayout mesh({{"dp", 2}, {"tp", 2}});
  const Layout layout(mesh, Shape{11, 4}, {Shard(0), Shard(0)});
  for (const int rank : mesh.ranks()) {
    std::printf("rank %d holds %s\n", rank, to_string(layout.box_of(rank)).c_str());
  }
}
