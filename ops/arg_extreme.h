// Where the extremes are.

#pragma once

#include <optional>

#include "dtensor/ops/dims.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// i64: the global index of the largest (smallest) element along a dim; without a dim, of the whole
// tensor row-major. The lowest of several; the first NaN where there is one. The dim may not be cut
// (none may, without one): a rank does not know what the others hold. No gradient. ArgumentError
// over no elements.
DTensor argmax(const DTensor& a, std::optional<int> dim = {}, KeepDims keep = KeepDims::kNo,
               CallSite site = CallSite::here());
DTensor argmin(const DTensor& a, std::optional<int> dim = {}, KeepDims keep = KeepDims::kNo,
               CallSite site = CallSite::here());

// The largest (smallest) elements along a dim, and where they stand: as argmax, and with a gradient
// that goes to that element alone (amax shares it among equal ones).
struct ExtremeResult {
  DTensor values;
  DTensor indices;  // i64
};
ExtremeResult max_along(const DTensor& a, int dim, KeepDims keep = KeepDims::kNo,
                        CallSite site = CallSite::here());
ExtremeResult min_along(const DTensor& a, int dim, KeepDims keep = KeepDims::kNo,
                        CallSite site = CallSite::here());

}  // namespace dtensor
