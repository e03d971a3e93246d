// The cut rule: the one function that computes a shard boundary.
//
// A part [a, b) is cut into k parts; part c is [cut(c), cut(c + 1)) with
//   cut(c) = min(b, a + u * ceil(ceil((b - a) / u) * W(c) / W))
// u is the unit (whole attention heads, quantisation blocks), W(c) the sum of the first c weights
// and W of all. With u = 1 and equal weights this is a + ceil((b - a) * c / k): sizes differ by at
// most one and 11 over 4 is 3,3,3,2. Every boundary but the last is a whole number of units from a.

#pragma once

#include <cstdint>
#include <span>

#include "dtensor/base/error.h"

namespace dtensor {

// [begin, end) of one dim, in elements.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool empty() const { return begin >= end; }
  friend bool operator==(const Range&, const Range&) = default;
};

// Part `index` of `parts` of `whole`. `weights` is empty (all 1) or has one non-negative number
// per part, not all 0. ArgumentError for a bad index, unit or weights. No overflow: products are
// taken in 128 bits.
Range cut(Range whole, int index, int parts, int64_t unit = 1,
          std::span<const int64_t> weights = {});

}  // namespace dtensor
