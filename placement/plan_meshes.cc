#include "dtensor/placement/plan_meshes.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "dtensor/placement/least_payload.h"
#include "dtensor/placement/plan_split.h"
#include "dtensor/placement/step_cost.h"

namespace dtensor::internal {
namespace {

std::vector<int> sorted_ranks(const MeshLayout& mesh) {
  std::vector<int> ranks = mesh.ranks();
  if (!std::ranges::is_sorted(ranks)) std::ranges::sort(ranks);
  return ranks;
}

std::vector<int> dims_with(const Layout& layout, Placement::Kind kind) {
  std::vector<int> dims;
  for (int m = 0; m < layout.mesh().ndim(); ++m) {
    if (layout.placement(m).kind() == kind && layout.mesh().size(m) > 1) dims.push_back(m);
  }
  return dims;
}
std::vector<int> partial_dims(const Layout& layout) {
  return dims_with(layout, Placement::Kind::kPartial);
}

std::vector<PinnedDim> pinned(const std::vector<int>& dims, const Coordinate& at) {
  std::vector<PinnedDim> all;
  for (const int m : dims) all.push_back({m, at[m]});
  return all;
}

// A way to resolve what is Partial on the mesh of `from`.
struct Resolution {
  Path path = {};
  Layout layout;  // what it leads to, on the ranks at `only`
  std::vector<PinnedDim> only = {};
  ElementCount kept = 0;  // elements that ranks of both meshes have then of what they want
};

class MeshCrossing {
 public:
  MeshCrossing(const Layout& from, const Layout& to, const CostModel* model, int64_t* visited)
      : from_(from),
        to_(to),
        wanted_(with_all(to, partial_dims(to), Replicate())),
        old_ranks_(sorted_ranks(from.mesh())),
        new_ranks_(sorted_ranks(to.mesh())),
        model_(model),
        visited_(visited),
        at_zero_(pinned(at_zero_dims(from, to), Coordinate{})) {
    std::vector<int> both;
    std::ranges::set_intersection(old_ranks_, new_ranks_, std::back_inserter(both));
    for (const int rank : both) {
      const Coordinate at = *to.mesh().coordinate_of(rank);
      if (std::ranges::any_of(at_zero_, [&](PinnedDim p) { return at[p.mesh_dim] != 0; })) continue;
      both_.push_back({*from.mesh().coordinate_of(rank), at});
    }
  }

  Path find() {
    const PathBuilder new_mesh(at_zero_, visited_);
    const ElementCount wanted = new_mesh.held(wanted_);
    Resolution way = resolve(wanted);
    Path path = std::move(way.path);
    const int64_t payload = payload_of(wanted - way.kept);
    const bool same_holders = old_ranks_ == new_ranks_ && at_zero_.empty() && way.only.empty();
    if (payload != 0 || !same_holders || PathBuilder({}, visited_).held(way.layout) != wanted) {
      path.add(crossing(way, payload));
    }
    if (to_.spec().has_partial()) new_mesh.add_fill(path, wanted_, to_, PathBuilder::Fill::kLast);
    return path;
  }

 private:
  // Of the ways to resolve the one after which least is sent in all, or that is the fastest.
  Resolution resolve(ElementCount wanted) const {
    if (!from_.spec().has_partial() || from_.shape().numel() == 0) {
      const Layout layout = with_all(from_, partial_dims(from_), Replicate());
      return {.layout = layout, .kept = kept(layout)};
    }
    const std::vector<int> partial = partial_dims(from_);
    const std::vector<int> replicated = dims_with(from_, Placement::Kind::kReplicate);
    std::vector<Resolution> ways;
    const auto by_way_of = [&](const Layout& start, std::vector<PinnedDim> only) {
      const PathBuilder builder(only, visited_);
      for (int d = -1; d < from_.ndim(); ++d) {
        const Layout layout = with_all(start, partial, d < 0 ? Replicate() : Shard(d));
        Resolution& way = ways.emplace_back(Resolution{.layout = layout, .only = only});
        builder.add_local(way.path, from_, start);
        builder.add_reduction(way.path, start, layout, partial);
        if (only.empty()) way.kept = kept(layout);
      }
    };
    // Replicas need not all reduce everything: each a part of it, or one of them all.
    for (int d = 0; d < from_.ndim() && !replicated.empty(); ++d) {
      by_way_of(with_all(from_, replicated, Shard(d)), {});
    }
    by_way_of(from_, {});
    if (!replicated.empty()) {
      by_way_of(from_, pinned(replicated, Coordinate{}));
      for (size_t i = ways.size() - static_cast<size_t>(from_.ndim()) - 1; i < ways.size(); ++i) {
        pin_best(ways[i], replicated);
      }
    }
    if (model_ != nullptr) return fastest(std::move(ways), wanted);
    return *std::ranges::min_element(ways, {}, [](const Resolution& way) {
      return std::pair(way.path.payload >= kTooManyElements, way.path.payload - way.kept);
    });
  }

  Resolution fastest(std::vector<Resolution> ways, ElementCount wanted) const {
    for (Resolution& way : ways) {
      way.path = split_collectives(PathBuilder(way.only, visited_), way.path, *model_);
    }
    return *std::ranges::min_element(ways, {}, [&](const Resolution& way) {
      const int64_t payload = payload_of(wanted - way.kept);
      const double seconds =
          seconds_of(way.path, *model_) + dtensor::seconds_of(crossing(way, payload), *model_);
      return std::pair(seconds, way.path.payload - way.kept);
    });
  }

  // Elements that ranks of both meshes have of what they want.
  int64_t kept(const Layout& layout, const Coordinate& before, const Coordinate& after) const {
    if (visited_ != nullptr) ++*visited_;
    return intersect(layout.box(before), wanted_.box(after)).numel();
  }
  ElementCount kept(const Layout& layout) const {
    ElementCount all = 0;
    for (const auto& [before, after] : both_) all += kept(layout, before, after);
    return all;
  }

  // Moves a way that is at one coordinate of mesh dims to that at which most is kept.
  void pin_best(Resolution& way, const std::vector<int>& dims) const {
    std::map<std::vector<int>, std::pair<ElementCount, Coordinate>> by_coordinate;
    for (const auto& [before, after] : both_) {
      std::vector<int> key;
      for (const int m : dims) key.push_back(before[m]);
      auto& [sum, at] = by_coordinate[key];
      sum += kept(way.layout, before, after);
      at = before;
    }
    for (const auto& [key, entry] : by_coordinate) {
      if (entry.first <= way.kept) continue;
      way.kept = entry.first;
      way.only = pinned(dims, entry.second);
    }
    for (ReshardStep& step : way.path.steps) step.from_only = step.to_only = way.only;
  }

  ReshardStep crossing(const Resolution& way, int64_t payload) const {
    ReshardStep step{.kind = payload == 0 ? StepKind::kLocal : StepKind::kExchange,
                     .mesh_dims = {},
                     .from = way.layout,
                     .to = wanted_,
                     .op = {},
                     .payload = payload,
                     .from_only = way.only,
                     .to_only = at_zero_};
    std::vector<int> ranks;
    // One rank has it all, and everybody wants it all.
    if (payload != 0 && from_.mesh().size() == 1 && MeshDimSet::cutting(wanted_).empty()) {
      step.kind = StepKind::kBroadcast;
      ranks = receivers();
      ranks.push_back(from_.mesh().ranks().front());
      std::ranges::sort(ranks);
      ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    } else {
      std::ranges::set_union(old_ranks_, new_ranks_, std::back_inserter(ranks));
    }
    step.ranks = std::make_shared<const std::vector<int>>(std::move(ranks));
    return step;
  }

  std::vector<int> receivers() const {
    if (at_zero_.empty()) return new_ranks_;
    std::vector<int> others;
    for (int m = 0; m < to_.mesh().ndim(); ++m) {
      if (std::ranges::find(at_zero_, m, &PinnedDim::mesh_dim) == at_zero_.end()) {
        others.push_back(m);
      }
    }
    return to_.mesh().group(to_.mesh().coordinate_at(0), others);
  }

  const Layout& from_;
  const Layout& to_;
  Layout wanted_;  // `to` without what is Partial
  std::vector<int> old_ranks_;
  std::vector<int> new_ranks_;
  const CostModel* model_;
  int64_t* visited_;
  std::vector<PinnedDim> at_zero_;
  struct InBoth {
    Coordinate before;
    Coordinate after;
  };
  std::vector<InBoth> both_;  // ranks of both meshes that want something
};

}  // namespace

Path path_between_meshes(const Layout& from, const Layout& to, const CostModel* model,
                         int64_t* visited) {
  return MeshCrossing(from, to, model, visited).find();
}

}  // namespace dtensor::internal
