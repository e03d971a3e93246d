// Slices: parts of a tensor along a dim, which share its storage. Of a dim that is cut a slice is
// taken where the parts of it that ranks hold are those of a cut of the result (dtensor/ops/
// slice_layout.h): then no element moves. PlacementError, alike on all ranks, elsewhere.

#pragma once

#include <cstdint>
#include <limits>

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// [begin, begin + length) of a dim.
DTensor narrow(const DTensor& a, int dim, int64_t begin, int64_t length,
               CallSite site = CallSite::here());

// begin, begin + step, ... below end, as in Python: negative bounds count from the end, and bounds
// outside the dim are brought to it. step >= 1.
struct SliceOptions {
  int64_t begin = 0;
  int64_t end = std::numeric_limits<int64_t>::max();
  int64_t step = 1;
};
DTensor slice(const DTensor& a, int dim, const SliceOptions& options,
              CallSite site = CallSite::here());

// Element `index` of a dim that is not cut, without that dim. Negative counts from the end.
DTensor select(const DTensor& a, int dim, int64_t index, CallSite site = CallSite::here());

}  // namespace dtensor
