#include "dtensor/placement/plan_split.h"

#include <optional>
#include <utility>

#include "dtensor/placement/step_cost.h"

namespace dtensor::internal {
namespace {

class Splitter {
 public:
  Splitter(const PathBuilder& builder, const CostModel& model) : builder_(builder), model_(model) {}

  Path best_of(const ReshardStep& step) const {
    Path whole;
    whole.add(step);
    if (step.within || step.is_between_meshes() || step.mesh_dims.size() < 2) return whole;
    std::optional<Path> best;
    const auto offer = [&](Path path) {
      if (!best || seconds_of(path, model_) < seconds_of(*best, model_)) best = std::move(path);
    };
    offer(std::move(whole));
    switch (step.kind) {
      case StepKind::kAllGather:
      case StepKind::kReduceScatter:
        for (size_t k = 1; k < step.mesh_dims.size(); ++k) in_two(step, k, offer);
        break;
      case StepKind::kAllReduce:
        for (unsigned set = 1; set + 1 < 1U << step.mesh_dims.size(); ++set) {
          around(step, set, offer);
        }
        break;
      default:
        break;
    }
    return *std::move(best);
  }

 private:
  Path split(const Path& path) const {
    Path all;
    for (const ReshardStep& step : path.steps) all.add(best_of(step));
    return all;
  }

  // The first k mesh dims are the outer levels: scattered first, gathered last.
  template <class Offer>
  void in_two(const ReshardStep& step, size_t k, const Offer& offer) const {
    const auto middle = step.mesh_dims.begin() + static_cast<long>(k);
    const std::vector<int> outer(step.mesh_dims.begin(), middle);
    const std::vector<int> inner(middle, step.mesh_dims.end());
    Path path;
    if (step.kind == StepKind::kAllGather) {
      const Layout half = with_all(step.from, inner, Replicate());
      path.add(builder_.movement(step.from, half));
      path.add(builder_.movement(half, step.to));
    } else {
      const Layout half = with_all(step.to, inner, Partial(*step.op));
      if (!builder_.contains(step.from, half) || !builder_.contains(half, step.to)) return;
      builder_.add_reduction(path, step.from, half, outer);
      builder_.add_reduction(path, half, step.to, inner);
    }
    offer(split(path));
  }

  // Scatters over the mesh dims in `set`, reduces the parts over the others, gathers.
  template <class Offer>
  void around(const ReshardStep& step, unsigned set, const Offer& offer) const {
    if (step.from.ndim() == 0) return;
    std::vector<int> scattered;
    std::vector<int> reduced;
    for (size_t i = 0; i < step.mesh_dims.size(); ++i) {
      ((set >> i & 1U) != 0 ? scattered : reduced).push_back(step.mesh_dims[i]);
    }
    const Layout parts = cut_further(step.from, scattered);
    const Layout whole_parts = with_all(parts, reduced, Replicate());
    Path path;
    builder_.add_reduction(path, step.from, parts, scattered);
    builder_.add_reduction(path, parts, whole_parts, reduced);
    path.add(builder_.movement(whole_parts, step.to));
    offer(split(path));
  }

  const PathBuilder& builder_;
  const CostModel& model_;
};

}  // namespace

double seconds_of(const Path& path, const CostModel& model) {
  double all = 0;
  for (const ReshardStep& step : path.steps) all += dtensor::seconds_of(step, model);
  return all;
}

Path split_collectives(const PathBuilder& builder, const Path& path, const CostModel& model) {
  Path all;
  for (const ReshardStep& step : path.steps) all.add(Splitter(builder, model).best_of(step));
  return all;
}

}  // namespace dtensor::internal
