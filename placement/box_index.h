// BoxIndex: finds, among many boxes, those that meet a given one, without looking at all: a binary
// tree of bounding boxes, split at the median of the widest dim. Equal boxes are one entry.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dtensor/placement/layout.h"

namespace dtensor {

class BoxIndex {
 public:
  struct Entry {
    Box box;
    std::vector<int> tiles;  // positions in the span given, ascending; equal boxes share an entry
  };

  // Empty boxes are left out.
  explicit BoxIndex(std::span<const Box> boxes);

  const std::vector<Entry>& entries() const { return entries_; }
  // The entries that share an element with `box`, by the position of their first tile.
  std::vector<const Entry*> meeting(const Box& box) const;
  // Two entries that share an element; the first pair found.
  struct Overlap {
    const Entry* a = nullptr;
    const Entry* b = nullptr;
  };
  Overlap overlap() const;

  int64_t comparisons() const { return comparisons_; }

 private:
  struct Node {
    Box bounds;
    int first = 0;  // entries of a leaf: [first, last)
    int last = 0;
    int left = -1;  // children of an inner node
    int right = -1;
  };
  int build(int first, int last);

  std::vector<Entry> entries_;
  std::vector<Node> nodes_;  // the root is the last
  mutable int64_t comparisons_ = 0;
};

}  // namespace dtensor
