// Tiling: a set of boxes with their holders: ranks or files. Layouts and checkpoint records give
// Tilings; which boxes move between which holders is one computation, moves().

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dtensor/placement/layout.h"

namespace dtensor {

struct Tile {
  Box box;
  int holder = 0;  // a rank, or the index of a file's chunk
};

struct Tiling {
  Shape shape;
  std::vector<Tile> tiles;
};

// One tile per rank of the mesh, in the order of MeshLayout::ranks(); empty boxes too. The Partial
// of a layout is not in its Tiling.
Tiling tiling_of(const Layout& layout);

// A box that goes from a holder of `from` to a holder of `to`.
struct BoxMove {
  int src = 0;
  int dst = 0;
  Box box;
  friend bool operator==(const BoxMove&, const BoxMove&) = default;
};

// For every tile of `to` the boxes that it takes from `from`, each element once: from the holder
// of that number itself where it has it (src == dst: where both sides are ranks, a local copy),
// else from one of those that do: of n equal tiles the i-th tile of `to` takes number i modulo n.
// Tiles of `from` may be replicas and may overlap.
// Sorted by (dst, src, offset). PlacementError naming a box that nobody holds.
// Time and the number of box comparisons grow as n log n plus the number of moves; the latter is
// added to `comparisons` where given.
std::vector<BoxMove> moves(const Tiling& from, const Tiling& to, int64_t* comparisons = nullptr);

// Do the tiles cover every element, and no element twice? The first offence, nullopt where there is
// none; and the same as text.
struct TilingFault {
  enum class Kind : uint8_t { kOutside, kTwice, kNotCovered } kind = Kind::kNotCovered;
  Box box;         // the tile, the part held twice, or the part that nobody holds
  int holder = 0;  // of the tile; not of kNotCovered
  int other = 0;   // of kTwice: the second holder
};
std::optional<TilingFault> find_fault(const Tiling& tiling);
std::string check_tiling(const Tiling& tiling);

}  // namespace dtensor
