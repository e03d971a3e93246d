#include "dtensor/placement/plan_path.h"

#include <algorithm>
#include <array>

#include "dtensor/placement/cut_alike.h"

namespace dtensor::internal {
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

// Does one part of every cut by the levels from `first` on get all of what is cut?
bool one_part_has_all(const Layout& layout, int d, size_t first) {
  const MeshLayout& mesh = layout.mesh();
  int64_t most = layout.shape()[d];  // at most that long are the parts so far
  const auto levels = layout.spec().levels(d);
  for (size_t i = 0; i < levels.size(); ++i) {
    const Level& l = levels[i];
    if (i >= first) {
      if (most > l.unit) return false;
    } else if (mesh.weights(l.mesh_dim).empty()) {
      most = cut({0, most}, 0, mesh.size(l.mesh_dim), l.unit).size();
    }
  }
  return true;
}

}  // namespace

int64_t payload_of(ElementCount count) {
  return static_cast<int64_t>(std::min<ElementCount>(count, kTooManyElements));
}

int Path::messages() const {
  return static_cast<int>(std::ranges::count_if(
      steps, [](const ReshardStep& s) { return s.kind != StepKind::kLocal; }));
}

void Path::add(ReshardStep step) {
  payload = payload_of(ElementCount{payload} + step.payload);
  const bool joins = step.kind == StepKind::kLocal && !step.is_between_meshes() && !steps.empty() &&
                     steps.back().kind == StepKind::kLocal && !steps.back().is_between_meshes();
  if (joins) {
    steps.back().to = step.to;
    steps.back().to_only = step.to_only;
    if (step.op) steps.back().op = step.op;
    return;
  }
  steps.push_back(std::move(step));
}

void Path::add(Path path) {
  for (ReshardStep& step : path.steps) add(std::move(step));
}

Layout with_all(const Layout& layout, const std::vector<int>& mesh_dims, Placement placement) {
  if (mesh_dims.empty()) return layout;
  std::array<Placement, kMaxMeshDims> placements;
  placements.fill(placement);
  return layout.with(mesh_dims, std::span(placements).first(mesh_dims.size()));
}

Layout without_size_one(const Layout& layout) {
  std::vector<int> dims;
  for (int m = 0; m < layout.mesh().ndim(); ++m) {
    if (layout.mesh().size(m) == 1) dims.push_back(m);
  }
  return with_all(layout, dims, Replicate());
}

size_t common_levels(const Layout& a, const Layout& b, int d) {
  const auto la = a.spec().levels(d);
  const auto lb = b.spec().levels(d);
  const size_t most = std::min(la.size(), lb.size());
  size_t equal = 0;
  while (equal < most && la[equal] == lb[equal]) ++equal;
  if (equal == most || la[equal].mesh_dim != lb[equal].mesh_dim) return equal;
  std::vector<int64_t> lengths{a.shape()[d]};
  size_t i = 0;
  while (i < most && la[i].mesh_dim == lb[i].mesh_dim &&
         cut_alike(a.mesh(), la[i], lb[i], lengths)) {
    ++i;
  }
  return i;
}

Layout sliced(const Layout& from, const Layout& to) {
  Levels levels = levels_of(from);
  bool slices = false;
  for (int d = 0; d < from.ndim(); ++d) {
    const auto wanted = to.spec().levels(d);
    const size_t have = levels[static_cast<size_t>(d)].size();
    if (wanted.size() <= have || common_levels(from, to, d) < have) continue;
    size_t end = have;
    while (end < wanted.size() && from.placement(wanted[end].mesh_dim).is_replicate()) ++end;
    levels[static_cast<size_t>(d)].assign(wanted.begin(), wanted.begin() + static_cast<long>(end));
    slices |= end > have;
  }
  if (!slices) return from;
  std::array<Placement, kMaxMeshDims> placements{};
  for (int m = 0; m < from.mesh().ndim(); ++m) {
    if (from.placement(m).is_partial()) placements[static_cast<size_t>(m)] = from.placement(m);
  }
  const auto count = static_cast<size_t>(from.mesh().ndim());
  return Layout(Spec::from_levels(from.mesh(), levels, std::span(placements).first(count)),
                from.shape());
}

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

ElementCount PathBuilder::held(const Layout& a) const {
  // A cut deals every element out once.
  ElementCount all = a.shape().numel();
  for (int m = 0; m < a.mesh().ndim(); ++m) {
    if (!a.placement(m).is_shard() && !pinned_.contains(m)) all *= a.mesh().size(m);
  }
  return all;
}
ElementCount PathBuilder::held(const Layout& a, const Layout& b) const {
  const std::array<const Layout*, 2> all{&a, &b};
  return common_elements(all, pinned_, visited_);
}
ElementCount PathBuilder::held(const Layout& a, const Layout& b, const Layout& c) const {
  const std::array<const Layout*, 3> all{&a, &b, &c};
  return common_elements(all, pinned_, visited_);
}

bool PathBuilder::contains(const Layout& outer, const Layout& inner) const {
  return outer == inner || held(outer, inner) == held(inner);
}

ReshardStep PathBuilder::step(StepKind kind, const Layout& from, const Layout& to) const {
  return {.kind = kind,
          .mesh_dims = {},
          .from = from,
          .to = to,
          .op = {},
          .from_only = only_,
          .to_only = only_};
}

void PathBuilder::add_local(Path& path, const Layout& from, const Layout& to) const {
  if (!(from == to) && held(from) != held(to)) path.add(step(StepKind::kLocal, from, to));
}

void PathBuilder::add_fill(Path& path, const Layout& from, const Layout& to, Fill when) const {
  ReshardStep fill = step(StepKind::kLocal, from, to);
  const bool brings_back = when == Fill::kLast && !only_.empty();
  if (brings_back) fill.to_only.clear();
  if (!brings_back && held(from, to) == held(to)) return add_local(path, from, to);
  fill.op = to.spec().partial_op();
  path.add(std::move(fill));
}

void PathBuilder::add_terms(Path& path, const Layout& from, const Layout& to,
                            const std::vector<int>& mesh_dims) const {
  // Every element is held at one coordinate of the new Partial mesh dims, and there all ranks that
  // want it get it: of the ranks that differ on these alone one.
  int64_t n = 1;
  for (const int m : mesh_dims) n *= from.mesh().size(m);
  ReshardStep move = step(StepKind::kExchange, from, to);
  move.payload = payload_of(held(to) / n - held(from, to));
  if (move.payload == 0) return add_fill(path, from, to, Fill::kFirst);
  move.op = to.spec().partial_op();
  for (int d = 0; d < from.ndim(); ++d) {
    for (const Level& l : from.spec().levels(d).subspan(common_levels(from, to, d))) {
      if (std::ranges::find(mesh_dims, l.mesh_dim) == mesh_dims.end()) {
        move.mesh_dims.push_back(l.mesh_dim);
      }
    }
  }
  std::ranges::sort(move.mesh_dims);
  path.add(std::move(move));
}

Path PathBuilder::movement(const Layout& from, const Layout& to) const {
  Path path;
  const Layout have = sliced(from, to);
  const int64_t payload = payload_of(held(to) - held(have, to));
  if (payload == 0) {
    add_local(path, from, to);
    return path;
  }
  if (!(have == from)) add_local(path, from, have);
  // The group: the mesh dims that cut `from` otherwise than `to`. On the others a rank finds all it
  // wants at its own coordinate. In shard order, so that the pieces of a gather come in the order
  // of the tensor.
  ReshardStep move = step(StepKind::kAllGather, have, to);
  move.payload = payload;
  std::vector<int> new_dims;
  bool within_a_dim = false;
  bool one_has_all = true;
  for (int d = 0; d < from.ndim(); ++d) {
    const size_t common = common_levels(have, to, d);
    const auto old_levels = have.spec().levels(d).subspan(common);
    const auto new_levels = to.spec().levels(d).subspan(common);
    for (const Level& l : old_levels) move.mesh_dims.push_back(l.mesh_dim);
    for (const Level& l : new_levels) new_dims.push_back(l.mesh_dim);
    within_a_dim |= !old_levels.empty() && !new_levels.empty();
    one_has_all = one_has_all && one_part_has_all(have, d, common);
  }
  if (!new_dims.empty()) {
    std::ranges::sort(move.mesh_dims);
    std::ranges::sort(new_dims);
    move.kind =
        !within_a_dim && new_dims == move.mesh_dims ? StepKind::kAllToAll : StepKind::kExchange;
  } else if (one_has_all) {
    move.kind = StepKind::kBroadcast;
  }
  path.add(std::move(move));
  return path;
}

void PathBuilder::add_reduction(Path& path, const Layout& from, const Layout& to,
                                std::vector<int> mesh_dims,
                                const std::optional<Layout>& within) const {
  int64_t n = 1;
  for (const int m : mesh_dims) n *= from.mesh().size(m);
  const bool scatter = to.placement(mesh_dims.front()).is_shard();
  if (scatter) mesh_dims = in_shard_order(to, mesh_dims);
  ReshardStep reduce = step(scatter ? StepKind::kReduceScatter : StepKind::kAllReduce, from, to);
  reduce.mesh_dims = std::move(mesh_dims);
  reduce.op = from.spec().partial_op();
  reduce.within = within;
  const ElementCount elements = within ? held(to, *within) : held(to);
  // Every rank gets n - 1 shares of its part; of n equal boxes 2(n - 1) / n are sent by each.
  reduce.payload = payload_of(scatter ? (n - 1) * elements : 2 * (n - 1) * (elements / n));
  if (reduce.payload == 0) return add_local(path, from, to);  // no elements at all
  path.add(std::move(reduce));
}

bool PathBuilder::add_exchange_within(Path& path, const Layout& from, const Layout& to,
                                      std::vector<int> mesh_dims, const Layout& within) const {
  const bool gathers =
      std::ranges::none_of(mesh_dims, [&](int m) { return to.placement(m).is_shard(); });
  ReshardStep move = step(gathers ? StepKind::kAllGather : StepKind::kExchange, from, to);
  move.mesh_dims = std::move(mesh_dims);
  move.within = within;
  move.payload = payload_of(held(to) - held(from, within, to));
  if (move.payload == 0) return false;
  path.add(std::move(move));
  return true;
}

}  // namespace dtensor::internal
