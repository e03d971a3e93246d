// Order along a dim, which may not be cut: indices are global. Equal elements stay in the order of
// their indices, also in descending order, so the lowest index comes first; NaN counts as larger
// than every number. Values pass their gradient to where they stood; indices have none.

#pragma once

#include <cstdint>

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

struct SortOptions {
  int dim = -1;
  bool descending = false;
};
struct SortResult {
  DTensor values;
  DTensor indices;  // i64
};
SortResult sort(const DTensor& a, const SortOptions& options = {},
                CallSite site = CallSite::here());
DTensor argsort(const DTensor& a, const SortOptions& options = {},
                CallSite site = CallSite::here());

// The k largest, in descending order; of equal ones those of the lowest indices.
SortResult topk(const DTensor& a, int64_t k, int dim = -1, CallSite site = CallSite::here());

}  // namespace dtensor
