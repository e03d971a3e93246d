// Tensors joined along a dim, and a tensor taken apart along one. That dim may not be cut; the
// others stay as they are. Joining is jointly linear: P(sum) parts, an R one counting once.

#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// One after the other along an existing dim, of one shape in the others.
DTensor cat(std::span<const DTensor> parts, int dim = 0, CallSite site = CallSite::here());
// Of one shape, along a new dim of the result.
DTensor stack(std::span<const DTensor> parts, int dim = 0, CallSite site = CallSite::here());

// Views that share storage: parts of the given sizes, which add up to the dim; `n` parts by the cut
// rule (11 in 4: 3,3,3,2); and one part for each index, without the dim.
std::vector<DTensor> split(const DTensor& a, std::span<const int64_t> sizes, int dim = 0,
                           CallSite site = CallSite::here());
std::vector<DTensor> chunk(const DTensor& a, int n, int dim = 0, CallSite site = CallSite::here());
std::vector<DTensor> unbind(const DTensor& a, int dim = 0, CallSite site = CallSite::here());

inline DTensor cat(std::initializer_list<DTensor> parts, int dim = 0,
                   CallSite site = CallSite::here()) {
  return cat(std::span<const DTensor>(parts.begin(), parts.size()), dim, site);
}
inline DTensor stack(std::initializer_list<DTensor> parts, int dim = 0,
                     CallSite site = CallSite::here()) {
  return stack(std::span<const DTensor>(parts.begin(), parts.size()), dim, site);
}
inline std::vector<DTensor> split(const DTensor& a, std::initializer_list<int64_t> sizes,
                                  int dim = 0, CallSite site = CallSite::here()) {
  return split(a, std::span<const int64_t>(sizes.begin(), sizes.size()), dim, site);
}

}  // namespace dtensor
