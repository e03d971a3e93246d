// What differs between two checkpoints on disk, in bounded memory.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dtensor/checkpoint/contents.h"
#include "dtensor/checkpoint/convert.h"

namespace dtensor::checkpoint {

struct Difference {
  std::string name;
  std::string what;  // "only in first", "only in second", "shape", "dtype", "values"
  std::string text;  // for people
  std::optional<double> max_difference = {};  // of values; infinity where one is a NaN
};

// Tensors by name: which are missing on one side, have another shape or dtype, or other values.
// Values of two floating dtypes are compared as well, exactly. Equal bits are equal, NaNs too;
// values that differ by at most `tolerance` are equal. Both are located (open_stored).
std::vector<Difference> find_differences(const Contents& first, const Contents& second,
                                         double tolerance, const ConvertOptions& options = {});

}  // namespace dtensor::checkpoint
