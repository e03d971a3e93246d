// Overlap: which coordinates of a mesh hold something of a box, and how much layouts have in
// common over all ranks, found from the levels of the cuts without going through the ranks.
// `visited`, where given, is increased by the number of parts looked at.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dtensor/placement/layout.h"

namespace dtensor {

// A set of mesh dims.
class MeshDimSet {
 public:
  constexpr MeshDimSet() = default;
  static MeshDimSet of(std::span<const int> dims) {
    MeshDimSet set;
    for (const int m : dims) set.add(m);
    return set;
  }
  // Those that cut a tensor dim.
  static MeshDimSet cutting(const Layout& layout);

  void add(int m) { bits_ |= 1U << static_cast<unsigned>(m); }
  void remove(int m) { bits_ &= ~(1U << static_cast<unsigned>(m)); }
  bool contains(int m) const { return (bits_ >> static_cast<unsigned>(m) & 1U) != 0; }
  bool empty() const { return bits_ == 0; }
  friend MeshDimSet operator|(MeshDimSet a, MeshDimSet b) { return MeshDimSet(a.bits_ | b.bits_); }
  friend MeshDimSet operator&(MeshDimSet a, MeshDimSet b) { return MeshDimSet(a.bits_ & b.bits_); }
  friend bool operator==(MeshDimSet, MeshDimSet) = default;

 private:
  constexpr explicit MeshDimSet(unsigned bits) : bits_(bits) {}
  unsigned bits_ = 0;
};

// What a coordinate holds of a box; never empty.
struct Held {
  Coordinate at;
  Box box;
};

// Every coordinate that is as `fixed` on all mesh dims but those of `free` and holds something of
// `box`. Mesh dims of `free` that do not cut give one entry per coordinate. In no order.
std::vector<Held> held_of(const Layout& layout, const Box& box, const Coordinate& fixed,
                          MeshDimSet free, int64_t* visited = nullptr);

// Elements, each counted once per rank that holds it: of up to 2^63 on 2^31 ranks.
using ElementCount = __int128;

// The number of elements in the intersection of what the layouts, all of one mesh and shape, give
// a rank, added over the ranks with one coordinate on `pinned` (mesh dims that cut none of them).
// A cut deals every element out once, so that mesh dims on which only one of the layouts cuts, or
// all alike, are not gone through; nor are parts that have nothing in common.
ElementCount common_elements(std::span<const Layout* const> layouts, MeshDimSet pinned = {},
                             int64_t* visited = nullptr);

}  // namespace dtensor
