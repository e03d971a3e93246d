// Views: the results share storage where strides allow it. A gradient that is P(sum) passes.

#pragma once

#include <initializer_list>
#include <span>

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// Dim d of the result is dim dims[d] of `a`.
DTensor permute(const DTensor& a, std::span<const int> dims, CallSite site = CallSite::here());
DTensor transpose(const DTensor& a, int d0 = -2, int d1 = -1, CallSite site = CallSite::here());

// One -1 is inferred. Runs of dims become runs of dims of the same product. Within a run only the
// first dim (sizes of 1 aside) may be cut. Its cut is carried by units: joining dims multiplies the
// unit by the inner size, splitting divides it, or takes unit 1 where that gives the same
// boundaries. PlacementError, alike on all ranks, where a boundary would fall inside a row.
DTensor reshape(const DTensor& a, const Shape& shape, CallSite site = CallSite::here());
// The same, never a copy: ArgumentError where the strides of a rank's piece do not allow it.
DTensor view(const DTensor& a, const Shape& shape, CallSite site = CallSite::here());
// Dims first to last, both included, as one.
DTensor flatten(const DTensor& a, int first = 0, int last = -1, CallSite site = CallSite::here());
// One dim as several of the same product; one -1 is inferred.
DTensor unflatten(const DTensor& a, int dim, const Shape& sizes, CallSite site = CallSite::here());
// Without a dim of size 1 (ArgumentError for another); with a new one at `dim` of the result.
DTensor squeeze(const DTensor& a, int dim, CallSite site = CallSite::here());
DTensor unsqueeze(const DTensor& a, int dim, CallSite site = CallSite::here());

// Dims of size 1, and new leading dims, repeated without a copy; -1 keeps a dim. What is repeated
// may not be cut. The gradient is summed over it.
DTensor expand(const DTensor& a, const Shape& shape, CallSite site = CallSite::here());
// The adjoint of expand: the sum over what was repeated of `shape` to become a.
DTensor sum_to(const DTensor& a, const Shape& shape);

inline DTensor permute(const DTensor& a, std::initializer_list<int> dims,
                       CallSite site = CallSite::here()) {
  return permute(a, std::span<const int>(dims.begin(), dims.size()), site);
}

}  // namespace dtensor
