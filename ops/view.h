// Views: the results share storage where strides allow it. A gradient that is P(sum) passes.

#pragma once

#include <span>

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

DTensor transpose(const DTensor& a, int d0 = -2, int d1 = -1, CallSite site = CallSite::here());

// One -1 is inferred. Runs of dims become runs of dims of the same product. Within a run only the
// first dim (sizes of 1 aside) may be cut. Its cut is carried by units: joining dims multiplies the
// unit by the inner size, splitting divides it, or takes unit 1 where that gives the same
// boundaries. PlacementError, alike on all ranks, where a boundary would fall inside a row.
DTensor reshape(const DTensor& a, const Shape& shape, CallSite site = CallSite::here());

// [begin, begin + length) of a dim that is not cut.
DTensor narrow(const DTensor& a, int dim, int64_t begin, int64_t length,
               CallSite site = CallSite::here());

}  // namespace dtensor
