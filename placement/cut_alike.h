// Do levels cut alike? Told from the lengths of parts, of which a cut has few, however long its
// mesh dim is and however deep the level lies.

#pragma once

#include <cstdint>
#include <vector>

#include "dtensor/placement/spec.h"

namespace dtensor::internal {

// Do two levels of one mesh dim cut parts of these lengths alike? `lengths` becomes those of the
// new parts, each once.
bool cut_alike(const MeshLayout& mesh, const Level& a, const Level& b,
               std::vector<int64_t>& lengths);

}  // namespace dtensor::internal
