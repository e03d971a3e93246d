// Options of fully_shard. Those that a group does not give are taken from the root's.

#pragma once

#include <optional>

#include "dtensor/base/dtype.h"

namespace dtensor::fsdp {

struct Options {
  std::optional<DType> param_dtype = {};   // of the gathered parameters; the parameter's own
  std::optional<DType> reduce_dtype = {};  // of gradients on the wire; param_dtype
  // Free after forward, gather again for backward. Default: true, but for the root, whose group
  // would be gathered again at once.
  std::optional<bool> reshard_after_forward = {};
};

}  // namespace dtensor::fsdp
