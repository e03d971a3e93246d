#include "dtensor/placement/plan_search.h"

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>

#include "dtensor/placement/plan_split.h"

namespace dtensor::internal {
namespace {

bool cuts(const Layout& layout, int m) { return layout.placement(m).is_shard(); }

// The mesh dims on which `from` is Partial and `to` is not.
std::vector<int> resolved(const Layout& from, const Layout& to) {
  std::vector<int> dims;
  for (int m = 0; m < from.mesh().ndim(); ++m) {
    if (from.placement(m).is_partial() && !to.placement(m).is_partial()) dims.push_back(m);
  }
  return dims;
}

struct Split {
  std::vector<int> cut;         // become S
  std::vector<int> replicated;  // become R
};

Split split(const Layout& to, const std::vector<int>& mesh_dims) {
  Split s;
  for (const int m : in_shard_order(to, mesh_dims)) s.cut.push_back(m);
  for (const int m : mesh_dims) {
    if (!cuts(to, m)) s.replicated.push_back(m);
  }
  return s;
}

// The mesh dims that cut `from` otherwise than `to`.
std::vector<int> cut_otherwise(const Layout& from, const Layout& to) {
  std::vector<int> dims;
  for (int d = 0; d < from.ndim(); ++d) {
    for (const Level& l : from.spec().levels(d).subspan(common_levels(from, to, d))) {
      dims.push_back(l.mesh_dim);
    }
  }
  return dims;
}

// Of bounds on the payload of ways that are of interest: all of them, or those of least payload.
constexpr int64_t kAll = INT64_MAX;
constexpr int64_t kLeast = kTooManyElements;

// P -> R and P -> S together with other moves.
class ReductionSearch {
 public:
  // Ways that send more than `most`, or than another way, may be left out.
  ReductionSearch(const PathBuilder& builder, const Layout& from, const Layout& to, int64_t most)
      : builder_(builder), from_(from), to_(to), mesh_dims_(resolved(from, to)), most_(most) {}

  // The ways to resolve first and move then, or to move first.
  std::vector<Path> all() {
    if (builder_.contains(from_, to_)) {
      paths_.push_back(inside(from_));
      return std::move(paths_);
    }
    const Layout have = sliced(from_, to_);
    add_detours(have);
    add_across(have);
    // Replicas that will be cut need not all reduce everything.
    std::vector<int> replicas;
    for (int m = 0; m < from_.mesh().ndim(); ++m) {
      if (have.placement(m).is_replicate() && cuts(to_, m)) replicas.push_back(m);
    }
    for (int d = 0; d < from_.ndim() && !replicas.empty(); ++d) {
      add_detours(with_all(have, replicas, Shard(d)));
    }
    const Layout moved = with_all(to_, mesh_dims_, Partial(from_.spec().partial_op()));
    if (builder_.contains(moved, to_)) {
      Path path = builder_.movement(from_, moved);
      if (path.payload <= most_) {
        path.add(inside(moved));
        paths_.push_back(std::move(path));
      }
    }
    return std::move(paths_);
  }

 private:
  // Where every rank's new piece lies in the old one: exactly what is wanted is reduced.
  Path inside(const Layout& from) const {
    Path path;
    const Split s = split(to_, mesh_dims_);
    if (s.cut.empty()) {
      const Layout slice = with_all(to_, mesh_dims_, Partial(from.spec().partial_op()));
      builder_.add_local(path, from, slice);
      builder_.add_reduction(path, slice, to_, mesh_dims_);
      return path;
    }
    if (s.replicated.empty()) {
      builder_.add_reduction(path, from, to_, mesh_dims_);
      return path;
    }
    const Layout parts = cut_further(to_, s.replicated);
    builder_.add_reduction(path, from, parts, mesh_dims_);
    path.add(builder_.movement(parts, to_));
    return path;
  }

  // Where the new parts cross the old ones: every rank reduces, of what it holds, that which the
  // ranks at its coordinate on the reduced mesh dims want, and these exchange it. For [P,S(0)] ->
  // [S(0),R], that is its old rows among its new ones. Nothing where the parts to reduce would be
  // no boxes: where what these ranks want together is none.
  void add_across(const Layout& have) {
    std::vector<int> group = cut_otherwise(have, to_);
    Layout together = with_all(to_, group, Replicate());
    if (!builder_.contains(together, to_)) return;
    const Split s = split(to_, mesh_dims_);
    if (!s.replicated.empty()) together = cut_further(together, s.replicated);
    group.insert(group.end(), s.replicated.begin(), s.replicated.end());
    std::ranges::sort(group);
    Path path;
    builder_.add_local(path, from_, have);
    builder_.add_reduction(path, have, together, mesh_dims_, have);
    if (path.payload > most_) return;
    if (builder_.add_exchange_within(path, together, to_, group, have)) {
      paths_.push_back(std::move(path));
    }
  }

  void by_way_of(const Layout& start, const Layout& middle) {
    if (std::ranges::find(seen_, middle) != seen_.end()) return;
    seen_.push_back(middle);
    Path path;
    builder_.add_local(path, from_, start);
    builder_.add_reduction(path, start, middle, mesh_dims_);
    if (path.payload > most_) return;
    path.add(builder_.movement(middle, to_));
    if (most_ != kAll) most_ = std::min(most_, path.payload);
    paths_.push_back(std::move(path));
  }

  // By way of a layout on which the mesh dims are resolved: R, S(d) for any d, or as in `to`.
  void add_detours(const Layout& start) {
    by_way_of(start, with_all(start, mesh_dims_, Replicate()));
    const Split s = split(to_, mesh_dims_);
    std::vector<int> order = s.cut;
    order.insert(order.end(), s.replicated.begin(), s.replicated.end());
    for (int d = 0; d < from_.ndim(); ++d) by_way_of(start, with_all(start, order, Shard(d)));
    if (s.cut.empty()) return;
    Layout wanted = start;
    for (const int m : s.cut) {
      wanted = wanted.with(m, to_.placement(m), to_.spec().level(m)->unit);
    }
    by_way_of(start, s.replicated.empty() ? wanted : cut_further(wanted, s.replicated));
  }

  const PathBuilder& builder_;
  const Layout& from_;
  const Layout& to_;
  std::vector<int> mesh_dims_;
  int64_t most_;
  std::vector<Layout> seen_;  // middles
  std::vector<Path> paths_;
};

// Paths to a layout that has no Partial mesh dim that `from` does not have.
std::vector<Path> paths_between(const PathBuilder& builder, const Layout& from, const Layout& to,
                                int64_t most) {
  if (resolved(from, to).empty()) return {builder.movement(from, to)};
  return ReductionSearch(builder, from, to, most).all();
}

bool becomes_partial(const Layout& from, const Layout& to, int m) {
  return to.placement(m).is_partial() && !from.placement(m).is_partial();
}

// `to` before its mesh dims that become Partial do so: R where they were R, and where they cut they
// keep their level, as the last.
Layout before_partial(const Layout& from, const Layout& to) {
  Layout before = to;
  for (int m = 0; m < from.mesh().ndim(); ++m) {
    if (becomes_partial(from, to, m)) before = before.with(m, Replicate());
  }
  for (int d = 0; d < from.ndim(); ++d) {
    for (const Level& level : from.spec().levels(d)) {
      if (becomes_partial(from, to, level.mesh_dim)) {
        before = before.with(level.mesh_dim, Shard(d), level.unit);
      }
    }
  }
  return before;
}

// R -> P last. S -> P last, where that is free; else before or after what else is to be done.
class PartialSearch {
 public:
  PartialSearch(const PathBuilder& builder, const Layout& from, const Layout& to, int64_t most)
      : builder_(builder), from_(from), to_(to), most_(most) {}

  std::vector<Path> all() {
    const Layout before = before_partial(from_, to_);
    std::vector<int> cut;  // S -> P
    for (int m = 0; m < from_.mesh().ndim(); ++m) {
      if (cuts(from_, m) && to_.placement(m).is_partial()) cut.push_back(m);
    }
    const std::vector<int> reduced = resolved(from_, to_);
    if (cut.empty() || reduced.empty()) {
      by_way_of(before);
      const bool free = std::ranges::any_of(paths_, [](const Path& p) { return p.payload == 0; });
      if (!cut.empty() && !free) by_terms({}, from_, without(before, cut), cut);
      return std::move(paths_);
    }
    for (int d = -1; d < from_.ndim(); ++d) {
      const Layout whole = with_all(from_, reduced, d < 0 ? Replicate() : Shard(d));
      Path path;
      builder_.add_reduction(path, from_, whole, reduced);
      if (path.payload <= most_) by_terms(std::move(path), whole, without(before, cut), cut);
    }
    by_way_of(before);
    for (int d = 0; d < from_.ndim(); ++d) {
      const Layout other = with_all(with_all(before, cut, Replicate()), cut, Shard(d));
      if (!(other == before)) by_way_of(other);
    }
    return std::move(paths_);
  }

 private:
  void add(Path path, const Layout& layout) {
    builder_.add_fill(path, layout, to_, PathBuilder::Fill::kLast);
    if (most_ != kAll) most_ = std::min(most_, path.payload);
    paths_.push_back(std::move(path));
  }
  Layout without(const Layout& before, const std::vector<int>& cut) const {
    return with_all(before, cut, Partial(to_.spec().partial_op()));
  }
  void by_way_of(const Layout& before) {
    for (Path& path : paths_between(builder_, from_, before, most_)) add(std::move(path), before);
  }
  // After `path`, which leads to `layout`.
  void by_terms(Path path, const Layout& layout, const Layout& wanted,
                const std::vector<int>& cut) {
    builder_.add_terms(path, layout, wanted, cut);
    add(std::move(path), wanted);
  }

  const PathBuilder& builder_;
  const Layout& from_;
  const Layout& to_;
  int64_t most_;
  std::vector<Path> paths_;
};

}  // namespace

Path find_path(const PathBuilder& builder, const Layout& from, const Layout& to,
               const CostModel* model) {
  const int64_t most = model == nullptr ? kLeast : kAll;
  std::vector<Path> paths = to.spec().has_partial() ? PartialSearch(builder, from, to, most).all()
                                                    : paths_between(builder, from, to, most);
  if (model == nullptr) {
    return *std::ranges::min_element(
        paths, {}, [](const Path& p) { return std::pair(p.payload, p.messages()); });
  }
  for (Path& path : paths) path = split_collectives(builder, path, *model);
  return *std::ranges::min_element(paths, {}, [&](const Path& p) {
    return std::tuple(seconds_of(p, *model), p.payload, p.messages());
  });
}

}  // namespace dtensor::internal
