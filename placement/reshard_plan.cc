#include "dtensor/placement/reshard_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "dtensor/placement/least_payload.h"

namespace dtensor {
namespace {

using Levels = std::vector<std::vector<Level>>;

Levels levels_of(const Layout& layout) {
  Levels levels;
  for (int d = 0; d < layout.ndim(); ++d) {
    const auto of_dim = layout.spec().levels(d);
    levels.emplace_back(of_dim.begin(), of_dim.end());
  }
  return levels;
}

bool cuts(const Layout& layout, int m) { return layout.placement(m).is_shard(); }
bool is_partial(const Layout& layout, int m) { return layout.placement(m).is_partial(); }

// The mesh dims on which `from` is Partial and `to` is not.
std::vector<int> resolved(const Layout& from, const Layout& to) {
  std::vector<int> dims;
  for (int m = 0; m < from.mesh().ndim(); ++m) {
    if (is_partial(from, m) && !is_partial(to, m)) dims.push_back(m);
  }
  return dims;
}

Layout with_all(const Layout& layout, const std::vector<int>& mesh_dims, Placement placement) {
  const std::vector<Placement> placements(mesh_dims.size(), placement);
  return layout.with(mesh_dims, placements);
}

// Without what mesh dims of size 1 do: nothing.
Layout without_size_one(const Layout& layout) {
  std::vector<int> dims;
  for (int m = 0; m < layout.mesh().ndim(); ++m) {
    if (layout.mesh().size(m) == 1) dims.push_back(m);
  }
  return with_all(layout, dims, Replicate());
}

std::vector<Coordinate> coordinates(const MeshLayout& mesh) {
  std::vector<Coordinate> all;
  for (int i = 0; i < mesh.size(); ++i) all.push_back(mesh.coordinate_at(i));
  return all;
}

// On all ranks: does `outer` hold what `inner` holds?
bool contains(const Layout& outer, const Layout& inner) {
  return std::ranges::all_of(coordinates(outer.mesh()), [&](const Coordinate& at) {
    const Box box = inner.box(at);
    return box.empty() || intersect(outer.box(at), box) == box;
  });
}

// Of layouts of which one contains the other: equal sizes are then equal boxes.
bool same_sizes(const Layout& a, const Layout& b) {
  return std::ranges::all_of(coordinates(a.mesh()), [&](const Coordinate& at) {
    return a.local_shape(at) == b.local_shape(at);
  });
}

// How many levels of tensor dim `d` the two have in common from the outside: the same mesh dims
// with the same boundaries.
size_t common_levels(const Layout& a, const Layout& b, int d) {
  const auto la = a.spec().levels(d);
  const auto lb = b.spec().levels(d);
  const MeshLayout& mesh = a.mesh();
  std::vector<Range> parts{{0, a.shape()[d]}};
  size_t i = 0;
  for (; i < std::min(la.size(), lb.size()) && la[i].mesh_dim == lb[i].mesh_dim; ++i) {
    const int m = la[i].mesh_dim;
    std::vector<Range> next;
    for (const Range& part : parts) {
      for (int c = 0; c < mesh.size(m); ++c) {
        next.push_back(cut(part, c, mesh.size(m), la[i].unit, mesh.weights(m)));
        if (la[i].unit != lb[i].unit &&
            next.back() != cut(part, c, mesh.size(m), lb[i].unit, mesh.weights(m))) {
          return i;
        }
      }
    }
    parts = std::move(next);
  }
  return i;
}

// What every rank can cut off from `from` without a message, and without losing what another rank
// wants: where the levels of `from` are the outer ones of `to`, the next ones that `from` has not.
Layout sliced(const Layout& from, const Layout& to) {
  Levels levels = levels_of(from);
  for (int d = 0; d < from.ndim(); ++d) {
    const auto wanted = to.spec().levels(d);
    const size_t have = levels[static_cast<size_t>(d)].size();
    if (common_levels(from, to, d) < have) continue;
    size_t end = have;
    while (end < wanted.size() && from.placement(wanted[end].mesh_dim).is_replicate()) ++end;
    levels[static_cast<size_t>(d)].assign(wanted.begin(), wanted.begin() + static_cast<long>(end));
  }
  std::vector<Placement> placements;
  for (const Placement p : from.spec().placements()) {
    placements.push_back(p.is_partial() ? p : Replicate());
  }
  return Layout(Spec::from_levels(from.mesh(), levels, placements), from.shape());
}

// A list of steps from one layout to another.
struct Path {
  std::vector<ReshardStep> steps;
  int64_t payload = 0;

  int messages() const {
    return static_cast<int>(std::ranges::count_if(
        steps, [](const ReshardStep& s) { return s.kind != StepKind::kLocal; }));
  }
  // Local work is joined with local work before it.
  void add(ReshardStep step) {
    payload += step.payload;
    if (step.kind == StepKind::kLocal && !steps.empty() && steps.back().kind == StepKind::kLocal) {
      steps.back().to = step.to;
      if (step.op) steps.back().op = step.op;
      return;
    }
    steps.push_back(std::move(step));
  }
  void add(Path path) {
    for (ReshardStep& step : path.steps) add(std::move(step));
  }
};

// Local work, where there is any. `op` for what becomes Partial.
void add_local(Path& path, const Layout& from, const Layout& to,
               std::optional<PartialOp> op = std::nullopt) {
  ReshardStep step{StepKind::kLocal, {}, from, to, op, 0};
  const bool fills = op && std::ranges::any_of(coordinates(from.mesh()), [&](const auto& at) {
                       return rank_step(step, at).fill_identity;
                     });
  if (!fills) step.op.reset();
  if (fills || !same_sizes(from, to)) path.add(std::move(step));
}

int64_t lacking(const Layout& from, const Layout& to) {
  int64_t all = 0;
  for (const Coordinate& at : coordinates(from.mesh())) {
    const Box want = to.box(at);
    all += want.numel() - intersect(from.box(at), want).numel();
  }
  return all;
}

// R and S to R and S: Partial mesh dims stay as they are, each term moves by itself.
Path movement(const Layout& from, const Layout& to) {
  Path path;
  const Layout have = sliced(from, to);
  const int64_t payload = lacking(have, to);
  if (payload == 0) {
    add_local(path, from, to);
    return path;
  }
  add_local(path, from, have);
  // The group: the mesh dims that cut `from` otherwise than `to`. On the others a rank finds all it
  // wants at its own coordinate. In shard order, so that the pieces of a gather come in the order
  // of the tensor.
  ReshardStep step{StepKind::kAllGather, {}, have, to, std::nullopt, payload};
  std::vector<int> new_dims;
  bool within_a_dim = false;
  for (int d = 0; d < from.ndim(); ++d) {
    const size_t common = common_levels(have, to, d);
    const auto old_levels = have.spec().levels(d).subspan(common);
    const auto new_levels = to.spec().levels(d).subspan(common);
    for (const Level& l : old_levels) step.mesh_dims.push_back(l.mesh_dim);
    for (const Level& l : new_levels) new_dims.push_back(l.mesh_dim);
    within_a_dim |= !old_levels.empty() && !new_levels.empty();
  }
  if (!new_dims.empty()) {
    std::ranges::sort(step.mesh_dims);
    std::ranges::sort(new_dims);
    step.kind =
        !within_a_dim && new_dims == step.mesh_dims ? StepKind::kAllToAll : StepKind::kExchange;
  }
  path.add(std::move(step));
  return path;
}

// Mesh dims in the order of their levels.
std::vector<int> in_shard_order(const Layout& layout, const std::vector<int>& mesh_dims) {
  std::vector<int> sorted;
  for (int d = 0; d < layout.ndim(); ++d) {
    for (const Level& l : layout.spec().levels(d)) {
      if (std::ranges::find(mesh_dims, l.mesh_dim) != mesh_dims.end()) {
        sorted.push_back(l.mesh_dim);
      }
    }
  }
  return sorted;
}

// Resolves mesh dims (P in `from`) to what they are in `to`: all R, or all S. The parts lie within
// what a rank holds, or are cut down to what of them lies `within` it.
void add_reduction(Path& path, const Layout& from, const Layout& to, std::vector<int> mesh_dims,
                   const std::optional<Layout>& within = std::nullopt) {
  int64_t n = 1;
  for (const int m : mesh_dims) n *= from.mesh().size(m);
  const bool scatter = cuts(to, mesh_dims.front());
  if (scatter) mesh_dims = in_shard_order(to, mesh_dims);
  ReshardStep step{scatter ? StepKind::kReduceScatter : StepKind::kAllReduce,
                   std::move(mesh_dims),
                   from,
                   to,
                   from.spec().partial_op(),
                   0,
                   within};
  int64_t elements = 0;
  for (const Coordinate& at : coordinates(from.mesh())) elements += box_after(step, at).numel();
  // Every rank gets n - 1 shares of its part; of n equal boxes 2(n - 1) / n are sent by each.
  step.payload = scatter ? (n - 1) * elements : 2 * (n - 1) * (elements / n);
  if (step.payload == 0) return add_local(path, from, to);  // no elements at all
  path.add(std::move(step));
}

// `layout` with these mesh dims cutting it further: the first tensor dim that is long enough on
// every rank's piece, else the longest.
Layout cut_further(const Layout& layout, const std::vector<int>& mesh_dims) {
  int64_t parts = 1;
  for (const int m : mesh_dims) parts *= layout.mesh().size(m);
  const Shape local = layout.local_shape(layout.mesh().coordinate_at(0));
  int best = 0;
  for (int d = 0; d < layout.ndim() && local[best] < parts; ++d) {
    if (local[d] > local[best]) best = d;
  }
  return with_all(layout, mesh_dims, Shard(best));
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

// Where every rank's new piece lies in the old one: exactly what is wanted is reduced.
Path reduction_inside(const Layout& from, const Layout& to, const std::vector<int>& mesh_dims) {
  Path path;
  const Split s = split(to, mesh_dims);
  if (s.cut.empty()) {
    const Layout slice = with_all(to, mesh_dims, Partial(from.spec().partial_op()));
    add_local(path, from, slice);
    add_reduction(path, slice, to, mesh_dims);
    return path;
  }
  if (s.replicated.empty()) {
    add_reduction(path, from, to, mesh_dims);
    return path;
  }
  const Layout parts = cut_further(to, s.replicated);
  add_reduction(path, from, parts, mesh_dims);
  path.add(movement(parts, to));
  return path;
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

// Where the new parts cross the old ones: every rank reduces, of what it holds, that which the
// ranks at its coordinate on the reduced mesh dims want, and these exchange it. For [P,S(0)] ->
// [S(0),R], that is its old rows among its new ones. Nothing where the parts to reduce would be no
// boxes: where what these ranks want together is none.
std::optional<Path> reduction_across(const Layout& from, const Layout& to,
                                     const std::vector<int>& mesh_dims) {
  std::vector<int> group = cut_otherwise(from, to);
  Layout together = with_all(to, group, Replicate());
  if (!contains(together, to)) return std::nullopt;
  const Split s = split(to, mesh_dims);
  if (!s.replicated.empty()) together = cut_further(together, s.replicated);
  group.insert(group.end(), s.replicated.begin(), s.replicated.end());
  std::ranges::sort(group);
  Path path;
  add_reduction(path, from, together, mesh_dims, from);
  const bool gathers = std::ranges::none_of(group, [&](int m) { return cuts(to, m); });
  ReshardStep step{gathers ? StepKind::kAllGather : StepKind::kExchange,
                   group,
                   together,
                   to,
                   std::nullopt,
                   0,
                   from};
  for (const Coordinate& at : coordinates(from.mesh())) step.payload += received(step, at);
  if (step.payload == 0) return std::nullopt;
  path.add(std::move(step));
  return path;
}

// By way of a layout on which the mesh dims are resolved: R, S(d) for any d, or as in `to`.
void add_detours(std::vector<Path>& paths, const Layout& from, const Layout& start,
                 const Layout& to, const std::vector<int>& mesh_dims) {
  const auto by_way_of = [&](const Layout& middle) {
    Path path;
    add_local(path, from, start);
    add_reduction(path, start, middle, mesh_dims);
    path.add(movement(middle, to));
    paths.push_back(std::move(path));
  };
  by_way_of(with_all(start, mesh_dims, Replicate()));
  const Split s = split(to, mesh_dims);
  std::vector<int> order = s.cut;
  order.insert(order.end(), s.replicated.begin(), s.replicated.end());
  for (int d = 0; d < from.ndim(); ++d) by_way_of(with_all(start, order, Shard(d)));
  if (s.cut.empty()) return;
  Layout wanted = start;
  for (const int m : s.cut) wanted = wanted.with(m, to.placement(m), to.spec().level(m)->unit);
  by_way_of(s.replicated.empty() ? wanted : cut_further(wanted, s.replicated));
}

// P -> R and P -> S together with other moves: of the ways to resolve first and move then, or to
// move first, the one that sends least; of equal ones that with the fewest collectives.
Path reduction(const Layout& from, const Layout& to, const std::vector<int>& mesh_dims) {
  if (contains(from, to)) return reduction_inside(from, to, mesh_dims);
  const Layout have = sliced(from, to);
  std::vector<Path> paths;
  add_detours(paths, from, have, to, mesh_dims);
  if (auto across = reduction_across(have, to, mesh_dims)) {
    Path path;
    add_local(path, from, have);
    path.add(*std::move(across));
    paths.push_back(std::move(path));
  }
  // Replicas that will be cut need not all reduce everything.
  std::vector<int> replicas;
  for (int m = 0; m < from.mesh().ndim(); ++m) {
    if (have.placement(m).is_replicate() && cuts(to, m)) replicas.push_back(m);
  }
  for (int d = 0; d < from.ndim() && !replicas.empty(); ++d) {
    add_detours(paths, from, with_all(have, replicas, Shard(d)), to, mesh_dims);
  }
  const Layout moved = with_all(to, mesh_dims, Partial(from.spec().partial_op()));
  if (contains(moved, to)) {
    Path path = movement(from, moved);
    path.add(reduction_inside(moved, to, mesh_dims));
    paths.push_back(std::move(path));
  }
  return *std::ranges::min_element(
      paths, {}, [](const Path& p) { return std::pair(p.payload, p.messages()); });
}

void check(const Layout& from, const Layout& to) {
  if (from.shape() != to.shape()) {
    throw PlacementError(fmt::format("plan: from a tensor of shape {} to one of shape {}",
                                     to_string(from.shape()), to_string(to.shape())));
  }
  if (!(from.mesh() == to.mesh())) {
    throw PlacementError(
        fmt::format("plan: from the mesh \"{}\" to the mesh \"{}\": moves between two meshes are "
                    "not supported; load a checkpoint on the other mesh instead",
                    to_string(from.mesh()), to_string(to.mesh())));
  }
  for (int m = 0; m < from.mesh().ndim(); ++m) {
    const Placement a = from.placement(m);
    const Placement b = to.placement(m);
    if (a.is_partial() && b.is_partial() && a.op() != b.op()) {
      throw PlacementError(fmt::format(
          "{} cannot become {} on mesh dim \"{}\": the terms of one reduction are not those of "
          "another. Use redistribute(t, {{Replicate()}}) on that dim first",
          to_string(a), to_string(b), from.mesh().name(m)));
    }
  }
}

Path find_path(const Layout& from, const Layout& to) {
  const Layout before = before_partial(from, to);
  const std::vector<int> mesh_dims = resolved(from, before);
  Path path = mesh_dims.empty() ? movement(from, before) : reduction(from, before, mesh_dims);
  if (to.spec().has_partial()) add_local(path, before, to, to.spec().partial_op());
  return path;
}

}  // namespace

ReshardPlan plan(const Layout& from, const Layout& to) {
  check(from, to);
  ReshardPlan plan;
  plan.from_ = from;
  plan.to_ = to;
  if (equal_boundaries(from, to)) return plan;
  Path path = find_path(without_size_one(from), without_size_one(to));
  if (path.steps.empty()) return plan;
  path.steps.front().from = from;
  path.steps.back().to = to;
  plan.steps_ = std::move(path.steps);
  plan.payload_ = path.payload;
  for (const Coordinate& at : coordinates(from.mesh())) {
    int64_t all = 0;
    for (const ReshardStep& step : plan.steps_) all += received(step, at);
    plan.most_received_ = std::max(plan.most_received_, all);
  }
  return plan;
}

int64_t ReshardPlan::payload_minimum() const {
  return least_payload(without_size_one(from_), without_size_one(to_));
}

std::vector<RankTraffic> ReshardPlan::traffic() const {
  std::vector<RankTraffic> all;
  for (const Coordinate& at : coordinates(from_.mesh())) {
    RankTraffic sum;
    for (const ReshardStep& step : steps_) {
      const RankTraffic one = dtensor::traffic(step, at);
      sum.sent += one.sent;
      sum.received += one.received;
    }
    all.push_back(sum);
  }
  return all;
}

std::vector<BoxMove> ReshardPlan::messages() const {
  std::vector<BoxMove> all;
  for (const ReshardStep& step : steps_) {
    for (const Coordinate& at : coordinates(from_.mesh())) {
      const RankStep mine = dtensor::rank_step(step, at);
      for (const RankPiece& piece : mine.receive) {
        all.push_back({mine.group[static_cast<size_t>(piece.peer)],
                       mine.group[static_cast<size_t>(mine.me)], piece.box});
      }
    }
  }
  std::ranges::sort(all, [](const BoxMove& a, const BoxMove& b) {
    if (std::pair(a.src, a.dst) != std::pair(b.src, b.dst)) {
      return std::pair(a.src, a.dst) < std::pair(b.src, b.dst);
    }
    return std::ranges::lexicographical_compare(a.box.offset, b.box.offset);
  });
  return all;
}

RankStep ReshardPlan::rank_step(int index, const Coordinate& at) const {
  return dtensor::rank_step(steps_.at(static_cast<size_t>(index)), at);
}

}  // namespace dtensor
