#include "dtensor/placement/tiling.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "dtensor/placement/box_index.h"

namespace dtensor {
namespace {

std::vector<Box> boxes_of(const Tiling& tiling) {
  std::vector<Box> boxes;
  for (const Tile& tile : tiling.tiles) boxes.push_back(tile.box);
  return boxes;
}

// Appends what is left of `box` without `hole` (a part of it), as at most two boxes per dim.
void subtract(Box box, const Box& hole, std::vector<Box>& rest) {
  for (int d = 0; d < box.offset.ndim(); ++d) {
    const int64_t before = hole.offset[d] - box.offset[d];
    const int64_t after = box.size[d] - before - hole.size[d];
    Box side = box;
    side.size[d] = before;
    if (before > 0) rest.push_back(side);
    side.offset[d] = hole.offset[d] + hole.size[d];
    side.size[d] = after;
    if (after > 0) rest.push_back(side);
    box.offset[d] = hole.offset[d];
    box.size[d] = hole.size[d];
  }
}

// Takes `piece` out of a set of disjoint boxes; `taken` gets the parts that were in it.
void take(std::vector<Box>& open, const Box& piece, std::vector<Box>& taken) {
  std::vector<Box> rest;
  for (const Box& box : open) {
    const Box common = intersect(box, piece);
    if (common.empty()) {
      rest.push_back(box);
      continue;
    }
    taken.push_back(common);
    subtract(box, common, rest);
  }
  open = std::move(rest);
}

class Mover {
 public:
  explicit Mover(const Tiling& from)
      : from_(from), index_(boxes_of(from)), disjoint_(index_.overlap().a == nullptr) {
    for (const BoxIndex::Entry& entry : index_.entries()) {
      if (entry.tiles.size() < kFew) continue;
      std::vector<int>& sorted = holders_[&entry];
      for (const int i : entry.tiles) sorted.push_back(from.tiles[static_cast<size_t>(i)].holder);
      std::ranges::sort(sorted);
    }
  }

  // The boxes that the tile takes that is number `position` of its Tiling.
  void serve(const Tile& tile, size_t position, std::vector<BoxMove>& out) const {
    if (tile.box.empty()) return;
    auto sources = index_.meeting(tile.box);
    if (disjoint_) {
      int64_t covered = 0;
      for (const auto* source : sources) {
        const Box box = intersect(source->box, tile.box);
        covered += box.numel();
        out.push_back({holder(*source, tile.holder, position), tile.holder, box});
      }
      if (covered != tile.box.numel()) throw_uncovered(tile, sources);
      return;
    }
    // Overlapping tiles: the receiver's own come first, then each takes what is still open.
    std::ranges::stable_sort(sources, {}, [&](const auto* source) {
      return holder(*source, tile.holder, position) == tile.holder ? 0 : 1;
    });
    std::vector<Box> open{tile.box};
    for (const auto* source : sources) {
      std::vector<Box> taken;
      take(open, source->box, taken);
      for (const Box& box : taken) {
        out.push_back({holder(*source, tile.holder, position), tile.holder, box});
      }
    }
    if (!open.empty()) throw_uncovered(tile, sources);
  }

  int64_t comparisons() const { return index_.comparisons(); }

 private:
  static constexpr size_t kFew = 8;

  bool is_held_by(const BoxIndex::Entry& entry, int wanted) const {
    if (entry.tiles.size() >= kFew) {
      return std::ranges::binary_search(holders_.at(&entry), wanted);
    }
    return std::ranges::any_of(
        entry.tiles, [&](int i) { return from_.tiles[static_cast<size_t>(i)].holder == wanted; });
  }
  int holder(const BoxIndex::Entry& entry, int wanted, size_t position) const {
    if (is_held_by(entry, wanted)) return wanted;
    const auto tile = static_cast<size_t>(entry.tiles[position % entry.tiles.size()]);
    return from_.tiles[tile].holder;
  }

  [[noreturn]] static void throw_uncovered(const Tile& tile,
                                           std::span<const BoxIndex::Entry* const> sources) {
    std::vector<Box> open{tile.box};
    std::vector<Box> taken;
    for (const auto* source : sources) take(open, source->box, taken);
    throw PlacementError(fmt::format("holder {} wants {}, but nobody holds {}", tile.holder,
                                     to_string(tile.box), to_string(open.at(0))));
  }

  const Tiling& from_;
  BoxIndex index_;
  bool disjoint_;
  std::map<const BoxIndex::Entry*, std::vector<int>> holders_;  // sorted, where there are many
};

}  // namespace

Tiling tiling_of(const Layout& layout) {
  Tiling tiling{layout.shape(), {}};
  const MeshLayout& mesh = layout.mesh();
  for (int i = 0; i < mesh.size(); ++i) {
    tiling.tiles.push_back(
        {layout.box(mesh.coordinate_at(i)), mesh.ranks()[static_cast<size_t>(i)]});
  }
  return tiling;
}

std::vector<BoxMove> moves(const Tiling& from, const Tiling& to, int64_t* comparisons) {
  if (from.shape != to.shape) {
    throw PlacementError(fmt::format("moves from a tensor of shape {} to one of shape {}",
                                     to_string(from.shape), to_string(to.shape)));
  }
  const Mover mover(from);
  std::vector<BoxMove> out;
  for (size_t i = 0; i < to.tiles.size(); ++i) mover.serve(to.tiles[i], i, out);
  std::ranges::sort(out, [](const BoxMove& a, const BoxMove& b) {
    if (a.dst != b.dst) return a.dst < b.dst;
    if (a.src != b.src) return a.src < b.src;
    return std::ranges::lexicographical_compare(a.box.offset, b.box.offset);
  });
  if (comparisons != nullptr) *comparisons += mover.comparisons();
  return out;
}

namespace {

// Without adding an offset to a size, which may overflow in what was read from a file.
bool is_inside(const Box& box, const Shape& shape) {
  if (box.offset.ndim() != shape.ndim() || box.size.ndim() != shape.ndim()) return false;
  for (int d = 0; d < shape.ndim(); ++d) {
    if (box.offset[d] < 0 || box.size[d] < 0 || box.size[d] > shape[d] ||
        box.offset[d] > shape[d] - box.size[d]) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::optional<TilingFault> find_fault(const Tiling& tiling) {
  using Kind = TilingFault::Kind;
  const Box whole{Shape::filled(tiling.shape.ndim(), 0), tiling.shape};
  for (const Tile& tile : tiling.tiles) {
    if (!is_inside(tile.box, tiling.shape))
      return TilingFault{Kind::kOutside, tile.box, tile.holder, 0};
  }
  const BoxIndex index(boxes_of(tiling));
  const auto twice = [&](const Box& box, int a, int b) {
    return TilingFault{Kind::kTwice, box, tiling.tiles[static_cast<size_t>(a)].holder,
                       tiling.tiles[static_cast<size_t>(b)].holder};
  };
  for (const auto& entry : index.entries()) {
    if (entry.tiles.size() > 1) return twice(entry.box, entry.tiles[0], entry.tiles[1]);
  }
  if (const auto pair = index.overlap(); pair.a != nullptr) {
    return twice(intersect(pair.a->box, pair.b->box), pair.a->tiles[0], pair.b->tiles[0]);
  }
  int64_t covered = 0;
  for (const auto& entry : index.entries()) covered += entry.box.numel();
  if (covered == whole.numel()) return std::nullopt;
  std::vector<Box> open{whole};
  std::vector<Box> taken;
  for (const Tile& tile : tiling.tiles) take(open, tile.box, taken);
  std::ranges::sort(open, [](const Box& a, const Box& b) {
    return std::ranges::lexicographical_compare(a.offset, b.offset);
  });
  return TilingFault{Kind::kNotCovered, open.at(0), 0, 0};
}

std::string check_tiling(const Tiling& tiling) {
  const auto fault = find_fault(tiling);
  if (!fault) return {};
  switch (fault->kind) {
    case TilingFault::Kind::kOutside:
      return fmt::format("offset {}, size {} of holder {} is outside the shape {}",
                         to_string(fault->box.offset), to_string(fault->box.size), fault->holder,
                         to_string(tiling.shape));
    case TilingFault::Kind::kTwice:
      return fmt::format("{} is held twice, by {} and {}", to_string(fault->box), fault->holder,
                         fault->other);
    case TilingFault::Kind::kNotCovered:
      break;
  }
  return fmt::format("{} is not covered", to_string(fault->box));
}

}  // namespace dtensor
