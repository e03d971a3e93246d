#include "dtensor/placement/overlap.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "dtensor/base/error.h"

namespace dtensor {
namespace {

void count(int64_t* visited) {
  if (visited != nullptr) ++*visited;
}

Range part(const MeshLayout& mesh, const Range& whole, const Level& level, int c) {
  return cut(whole, c, mesh.size(level.mesh_dim), level.unit, mesh.weights(level.mesh_dim));
}

Range common(const Range& a, const Range& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

// The first part of a cut that ends behind `at`: the one that has it, since empty parts end where
// they begin. The number of parts where there is none.
int part_at(const MeshLayout& mesh, const Range& whole, const Level& level, int64_t at,
            int64_t* visited) {
  int low = 0;
  int high = mesh.size(level.mesh_dim);
  while (low < high) {
    const int middle = low + (high - low) / 2;
    count(visited);
    if (part(mesh, whole, level, middle).end > at) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// Goes down the levels of a layout, dim by dim.
class HolderSearch {
 public:
  HolderSearch(const Layout& layout, const Box& box, MeshDimSet free, int64_t* visited)
      : layout_(layout), mesh_(layout.mesh()), box_(box), free_(free), visited_(visited) {
    const MeshDimSet cutting = MeshDimSet::cutting(layout);
    for (int m = 0; m < mesh_.ndim(); ++m) {
      if (free.contains(m) && !cutting.contains(m)) copied_over_.push_back(m);
    }
  }

  std::vector<Held> run(const Coordinate& fixed) {
    if (box_.empty()) return {};
    Held held{fixed, box_};
    dim(0, held);
    return std::move(found_);
  }

 private:
  void dim(int d, Held& held) {
    if (d == layout_.ndim()) return copies(0, held);
    level(d, 0, {0, layout_.shape()[d]}, held);
  }

  void level(int d, size_t i, const Range& range, Held& held) {
    const Range wanted{box_.offset[d], box_.offset[d] + box_.size[d]};
    const Range have = common(range, wanted);
    if (have.empty()) return;
    const auto levels = layout_.spec().levels(d);
    if (i == levels.size()) {
      held.box.offset[d] = have.begin;
      held.box.size[d] = have.size();
      return dim(d + 1, held);
    }
    const Level& l = levels[i];
    if (!free_.contains(l.mesh_dim)) {
      count(visited_);
      return level(d, i + 1, part(mesh_, range, l, held.at[l.mesh_dim]), held);
    }
    for (int c = part_at(mesh_, range, l, have.begin, visited_); c < mesh_.size(l.mesh_dim); ++c) {
      count(visited_);
      const Range next = part(mesh_, range, l, c);
      if (next.begin >= have.end) break;
      held.at[l.mesh_dim] = c;
      level(d, i + 1, next, held);
    }
  }

  void copies(size_t i, Held& held) {
    if (i == copied_over_.size()) {
      found_.push_back(held);
      return;
    }
    for (int c = 0; c < mesh_.size(copied_over_[i]); ++c) {
      count(visited_);
      held.at[copied_over_[i]] = c;
      copies(i + 1, held);
    }
  }

  const Layout& layout_;
  const MeshLayout& mesh_;
  const Box& box_;
  MeshDimSet free_;
  int64_t* visited_;
  std::vector<int> copied_over_;
  std::vector<Held> found_;
};

// Sum over the coordinates of a product over tensor dims of the lengths that layouts have in
// common. Mesh dims are gone through one by one; what a tensor dim has in common is known as soon
// as all mesh dims that cut it are set, and where that is nothing, so is the product.
class CommonSum {
  static constexpr size_t kMaxLayouts = 3;
  static constexpr int kFewParts = 8;
  static constexpr int64_t kFew = 256;  // coordinates that are gone through faster than remembered

 public:
  CommonSum(std::span<const Layout* const> layouts, int64_t* visited)
      : layouts_(layouts),
        mesh_(layouts.front()->mesh()),
        shape_(layouts.front()->shape()),
        visited_(visited) {
    internal_check(layouts.size() <= kMaxLayouts, "what more than three layouts have in common");
    for (int d = 0; d < shape_.ndim(); ++d) {
      for (const Layout* layout : layouts_) {
        for (const Level& l : layout->spec().levels(d)) dims_[index(d)].add(l.mesh_dim);
      }
      simple_[index(d)] = is_simple(d);
    }
  }

  ElementCount run(MeshDimSet pinned) {
    if (std::ranges::find(shape_, 0) != shape_.end()) return 0;
    MeshDimSet left;  // mesh dims that only repeat what is counted
    for (int m = 0; m < mesh_.ndim(); ++m) {
      if (!pinned.contains(m)) left.add(m);
    }
    ElementCount all = 1;
    std::array<bool, kMaxDims> done{};
    for (int d = 0; d < shape_.ndim(); ++d) {
      const int64_t length = simple_[index(d)] ? even_part(d) : -1;
      done[index(d)] = length >= 0;
      if (length >= 0) all *= length;
    }
    for (int d = 0; d < shape_.ndim() && all != 0; ++d) {
      if (done[index(d)]) continue;
      const MeshDimSet over = find_component(d, done);
      all *= component();
      for (int m = 0; m < mesh_.ndim(); ++m) {
        if (over.contains(m)) left.remove(m);
      }
    }
    for (int m = 0; m < mesh_.ndim(); ++m) {
      if (left.contains(m)) all *= mesh_.size(m);
    }
    return all;
  }

 private:
  static size_t index(int d) { return static_cast<size_t>(d); }

  // Are the levels of every layout the outer ones of one list? Then the ranges that have it all are
  // parts of the others.
  bool is_simple(int d) const {
    std::span<const Level> longest;
    for (const Layout* layout : layouts_) {
      const auto levels = layout->spec().levels(d);
      if (levels.size() > longest.size()) longest = levels;
    }
    return std::ranges::all_of(layouts_, [&](const Layout* layout) {
      const auto levels = layout->spec().levels(d);
      return std::ranges::equal(levels, longest.first(levels.size()));
    });
  }

  // The length of every part, where all are equal; -1 where they are not.
  int64_t even_part(int d) const {
    std::span<const Level> longest;
    for (const Layout* layout : layouts_) {
      const auto levels = layout->spec().levels(d);
      if (levels.size() > longest.size()) longest = levels;
    }
    int64_t length = shape_[d];
    for (const Level& l : longest) {
      const int64_t parts = mesh_.size(l.mesh_dim);
      if (!mesh_.weights(l.mesh_dim).empty() || length % parts != 0) return -1;
      // Without weights no part is longer than the first.
      if (part(mesh_, {0, length}, l, 0).size() != length / parts) return -1;
      length /= parts;
    }
    return length;
  }

  // The tensor dims that share mesh dims with `first`, they with others, and so on.
  MeshDimSet find_component(int first, std::array<bool, kMaxDims>& done) {
    dims_in_.assign(1, first);
    done[index(first)] = true;
    MeshDimSet over = dims_[index(first)];
    for (bool grows = true; grows;) {
      grows = false;
      for (int d = first + 1; d < shape_.ndim(); ++d) {
        if (done[index(d)] || (dims_[index(d)] & over).empty()) continue;
        done[index(d)] = true;
        dims_in_.push_back(d);
        over = over | dims_[index(d)];
        grows = true;
      }
    }
    return over;
  }

  ElementCount component() {
    if (dims_in_.size() == 1 && simple_[index(dims_in_[0])]) return shape_[dims_in_[0]];
    order_.clear();
    for (size_t i = 0; i < kMaxMeshDims; ++i) {  // outer levels first
      for (const int d : dims_in_) {
        for (const Layout* layout : layouts_) {
          const auto levels = layout->spec().levels(d);
          if (i < levels.size() && std::ranges::find(order_, levels[i].mesh_dim) == order_.end()) {
            order_.push_back(levels[i].mesh_dim);
          }
        }
      }
    }
    int64_t coordinates = 1;
    for (const int m : order_) coordinates *= mesh_.size(m);
    remembers_ = order_.size() > 1 && coordinates > kFew;
    known_.clear();
    State state = begin();
    return descend(0, state);
  }

  // How far a layout's levels of a tensor dim are gone down; by tensor dim of the component and by
  // layout. Without initial values, since a State is copied at every step and mostly unused.
  struct Chain {
    int64_t begin;
    int64_t end;
    size_t next;
    Range range() const { return {begin, end}; }
  };
  using State = std::array<Chain, kMaxLayouts * kMaxDims>;

  State begin() const {
    State state;
    for (size_t k = 0; k < dims_in_.size(); ++k) {
      for (size_t i = 0; i < layouts_.size(); ++i) {
        state[k * layouts_.size() + i] = {0, shape_[dims_in_[k]], 0};
      }
    }
    return state;
  }
  Chain& chain(State& state, size_t layout, size_t k) const {
    return state[k * layouts_.size() + layout];
  }

  // What the layouts have in common of a tensor dim, as far as it is known.
  Range common_of(State& state, size_t k) const {
    Range all = chain(state, 0, k).range();
    for (size_t i = 1; i < layouts_.size(); ++i) all = common(all, chain(state, i, k).range());
    return all;
  }

  ElementCount descend(size_t i, State& state) {
    if (i == order_.size()) {
      ElementCount product = 1;
      for (size_t k = 0; k < dims_in_.size(); ++k) {
        product *= common_of(state, k).size();
      }
      return product;
    }
    if (!remembers_) return sum_over(i, state);
    const auto [entry, is_new] = known_.try_emplace(key_of(i, state), 0);
    if (is_new) entry->second = sum_over(i, state);
    return entry->second;
  }

  ElementCount sum_over(size_t i, State& state) {
    const int m = order_[i];
    const auto [first, last] = candidates(state, m);
    ElementCount sum = 0;
    State next;
    for (int c = first; c < last; ++c) {
      count(visited_);
      std::copy_n(state.begin(), dims_in_.size() * layouts_.size(), next.begin());
      at_[m] = c;
      set_.add(m);
      if (advance(next)) sum += descend(i + 1, next);
      set_.remove(m);
    }
    return sum;
  }

  // What a sum depends on: where ranges lie to each other and how long they are (parts have few
  // lengths), and coordinates that are set before their level is reached.
  std::vector<int64_t> key_of(size_t i, State& state) {
    std::vector<int64_t> key{static_cast<int64_t>(i)};
    MeshDimSet waiting;
    for (size_t q = 0; q < dims_in_.size(); ++q) {
      const int64_t begin = chain(state, 0, q).begin;
      for (size_t l = 0; l < layouts_.size(); ++l) {
        const Chain& c = chain(state, l, q);
        key.push_back(c.begin - begin);
        key.push_back(c.end - c.begin);
        const auto levels = layouts_[l]->spec().levels(dims_in_[q]);
        for (size_t k = c.next; k < levels.size(); ++k) waiting.add(levels[k].mesh_dim);
      }
    }
    for (int m = 0; m < mesh_.ndim(); ++m) {
      if (waiting.contains(m) && set_.contains(m)) key.push_back(at_[m]);
    }
    return key;
  }

  // The coordinates on `m` that may have something in common: where it is the next level of a
  // chain, those whose parts meet what is common so far.
  std::pair<int, int> candidates(State& state, int m) {
    std::pair<int, int> parts{0, mesh_.size(m)};
    if (parts.second <= kFewParts) return parts;  // faster than to search
    for (size_t k = 0; k < dims_in_.size(); ++k) {
      const Range all = common_of(state, k);
      for (size_t i = 0; i < layouts_.size(); ++i) {
        const auto levels = layouts_[i]->spec().levels(dims_in_[k]);
        const Chain& c = chain(state, i, k);
        if (c.next == levels.size() || levels[c.next].mesh_dim != m) continue;
        if (all == c.range()) continue;  // all parts do
        parts.first =
            std::max(parts.first, part_at(mesh_, c.range(), levels[c.next], all.begin, visited_));
        parts.second = std::min(
            parts.second, part_at(mesh_, c.range(), levels[c.next], all.end - 1, visited_) + 1);
      }
    }
    return parts;
  }

  // Goes down where the next level's mesh dim is set. False where nothing is common any more.
  bool advance(State& state) {
    for (size_t k = 0; k < dims_in_.size(); ++k) {
      for (size_t i = 0; i < layouts_.size(); ++i) {
        const auto levels = layouts_[i]->spec().levels(dims_in_[k]);
        Chain& c = chain(state, i, k);
        while (c.next < levels.size() && set_.contains(levels[c.next].mesh_dim)) {
          const Range next = part(mesh_, c.range(), levels[c.next], at_[levels[c.next].mesh_dim]);
          c = {next.begin, next.end, c.next + 1};
        }
      }
      if (common_of(state, k).empty()) return false;
    }
    return true;
  }

  std::span<const Layout* const> layouts_;
  const MeshLayout& mesh_;
  Shape shape_;
  int64_t* visited_;
  std::array<MeshDimSet, kMaxDims> dims_{};
  std::array<bool, kMaxDims> simple_{};
  // Of the component at hand.
  std::vector<int> dims_in_;
  std::vector<int> order_;
  Coordinate at_;
  MeshDimSet set_;
  bool remembers_ = false;
  std::map<std::vector<int64_t>, ElementCount> known_;
};

}  // namespace

MeshDimSet MeshDimSet::cutting(const Layout& layout) {
  MeshDimSet set;
  for (int m = 0; m < layout.mesh().ndim(); ++m) {
    if (layout.placement(m).is_shard()) set.add(m);
  }
  return set;
}

std::vector<Held> held_of(const Layout& layout, const Box& box, const Coordinate& fixed,
                          MeshDimSet free, int64_t* visited) {
  return HolderSearch(layout, box, free, visited).run(fixed);
}

ElementCount common_elements(std::span<const Layout* const> layouts, MeshDimSet pinned,
                             int64_t* visited) {
  return CommonSum(layouts, visited).run(pinned);
}

}  // namespace dtensor
