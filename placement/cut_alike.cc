#include "dtensor/placement/cut_alike.h"

#include <algorithm>
#include <utility>

#include "dtensor/base/cut.h"

namespace dtensor::internal {

bool cut_alike(const MeshLayout& mesh, const Level& a, const Level& b,
               std::vector<int64_t>& lengths) {
  std::vector<int64_t> next;
  for (const int64_t length : lengths) {
    for (int c = 0; c < mesh.size(a.mesh_dim); ++c) {
      const auto part = [&](const Level& l) {
        return cut({0, length}, c, mesh.size(l.mesh_dim), l.unit, mesh.weights(l.mesh_dim));
      };
      const Range range = part(a);
      if (a.unit != b.unit && range != part(b)) return false;
      if (std::ranges::find(next, range.size()) == next.end()) next.push_back(range.size());
    }
  }
  lengths = std::move(next);
  return true;
}

}  // namespace dtensor::internal
