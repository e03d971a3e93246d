// Who writes what: a pure function of a tensor's name, dtype and layout, so that all ranks know it
// without a message, and every element is written by exactly one of them.

#pragma once

#include <optional>
#include <string_view>

#include "dtensor/base/dtype.h"
#include "dtensor/placement/layout.h"

namespace dtensor::checkpoint {

// A box that several ranks hold is shared by them from this size on, cut along dim 0 by the cut
// rule; a smaller one is written whole by the hash(name) mod replicas-th of them.
inline constexpr int64_t kSharedFromBytes = 64 << 10;

// What a rank writes of a tensor: nullopt where nothing, as outside the mesh. A tensor without
// elements is written by one rank, as an empty box, so that some record names it. PlacementError
// naming the tensor where it is Partial.
std::optional<Box> box_to_write(std::string_view name, DType dtype, const Layout& layout, int rank);

}  // namespace dtensor::checkpoint
