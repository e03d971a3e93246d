// Reductions over chosen dims; none means all of them. Negative dims count from the end.

#pragma once

#include <span>

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// A cut dim that is reduced gives P(sum).
DTensor sum(const DTensor& a, std::span<const int> dims = {}, CallSite site = CallSite::here());
// Divides by the global count: over a cut dim the result is P(sum). NaN over no elements.
DTensor mean(const DTensor& a, std::span<const int> dims = {}, CallSite site = CallSite::here());
// P(max), P(min) over a cut dim; no backward there. Elsewhere the gradient goes to the extreme
// elements, in equal parts where there are several.
DTensor amax(const DTensor& a, std::span<const int> dims = {}, CallSite site = CallSite::here());
DTensor amin(const DTensor& a, std::span<const int> dims = {}, CallSite site = CallSite::here());

}  // namespace dtensor
