// Segments: how one buffer is divided over the ranks of a Comm: a count and an offset per rank.
// Immutable. Counts are elements, in rank order, without gaps; a count may be 0.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dtensor/base/language.h"

namespace dtensor::comm {

class Segments {
 public:
  // ArgumentError for a negative count, or a total beyond int64.
  explicit Segments(std::span<const int64_t> counts);
  // `total` elements over `size` ranks by the cut rule (dtensor/base/cut.h): 11 over 4 is 3,3,3,2.
  static Segments even(int64_t total, int size);

  int size() const { return static_cast<int>(offsets_.size()) - 1; }
  int64_t count(int rank) const { return offset(rank + 1) - offset(rank); }
  int64_t offset(int rank) const { return offsets_[static_cast<size_t>(rank)]; }
  int64_t total() const { return offsets_.back(); }
  uint64_t hash() const;  // the same on every rank and machine
  friend bool operator==(const Segments&, const Segments&) = default;

 private:
  std::vector<int64_t> offsets_;  // size() + 1 of them
};

}  // namespace dtensor::comm
