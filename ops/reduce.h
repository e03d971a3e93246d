// Reductions over chosen dims; none means all of them. Negative dims count from the end.

#pragma once

#include <initializer_list>
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

// With dims written in place: sum(x, {0, -1}).
inline DTensor sum(const DTensor& a, std::initializer_list<int> dims,
                   CallSite site = CallSite::here()) {
  return sum(a, std::span<const int>(dims.begin(), dims.size()), site);
}
inline DTensor mean(const DTensor& a, std::initializer_list<int> dims,
                    CallSite site = CallSite::here()) {
  return mean(a, std::span<const int>(dims.begin(), dims.size()), site);
}
inline DTensor amax(const DTensor& a, std::initializer_list<int> dims,
                    CallSite site = CallSite::here()) {
  return amax(a, std::span<const int>(dims.begin(), dims.size()), site);
}
inline DTensor amin(const DTensor& a, std::initializer_list<int> dims,
                    CallSite site = CallSite::here()) {
  return amin(a, std::span<const int>(dims.begin(), dims.size()), site);
}

}  // namespace dtensor
