#include "dtensor/placement/reshard_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "dtensor/placement/least_payload.h"
#include "dtensor/placement/plan_meshes.h"
#include "dtensor/placement/plan_path.h"
#include "dtensor/placement/plan_search.h"

namespace dtensor {
namespace {

void check(const Layout& from, const Layout& to) {
  if (from.shape() != to.shape()) {
    throw PlacementError(fmt::format("plan: from a tensor of shape {} to one of shape {}",
                                     to_string(from.shape()), to_string(to.shape())));
  }
  if (!from.spec().has_partial() || !to.spec().has_partial()) return;
  const PartialOp a = from.spec().partial_op();
  const PartialOp b = to.spec().partial_op();
  if (a == b) return;
  const auto fail = [&](const std::string& where) {
    throw PlacementError(fmt::format(
        "{} cannot become {} on {}: the terms of one reduction are not those of another. Use "
        "redistribute(t, {{Replicate()}}) on that dim first",
        to_string(Partial(a)), to_string(Partial(b)), where));
  };
  if (!(from.mesh() == to.mesh())) fail(fmt::format("the mesh \"{}\"", to_string(to.mesh())));
  for (int m = 0; m < from.mesh().ndim(); ++m) {
    if (from.placement(m).is_partial() && to.placement(m).is_partial()) {
      fail(fmt::format("mesh dim \"{}\"", from.mesh().name(m)));
    }
  }
}

}  // namespace

class PlanMaker {
 public:
  // By the least payload where no model is given.
  static ReshardPlan make(const Layout& from, const Layout& to, const CostModel* model) {
    check(from, to);
    ReshardPlan plan;
    plan.from_ = from;
    plan.to_ = to;
    if (equal_boundaries(from, to) || keeps_terms(from, to)) return plan;
    const Layout a = internal::without_size_one(from);
    const Layout b = internal::without_size_one(to);
    internal::Path path = plan.is_between_meshes()
                              ? internal::path_between_meshes(a, b, model, &plan.visited_)
                              : on_one_mesh(a, b, model, &plan.visited_);
    if (path.payload >= internal::kTooManyElements) {
      throw ArgumentError(
          fmt::format("plan: {} -> {} of shape {} sends more elements than 64 bits can count",
                      to_string(from.spec()), to_string(to.spec()), to_string(from.shape())));
    }
    if (path.steps.empty()) return plan;
    path.steps.front().from = from;
    // Without a step between the meshes the boxes are equal on both.
    if (path.steps.back().to.mesh() == to.mesh()) path.steps.back().to = to;
    plan.steps_ = std::move(path.steps);
    plan.payload_ = path.payload;
    return plan;
  }

 private:
  static internal::Path on_one_mesh(const Layout& from, const Layout& to, const CostModel* model,
                                    int64_t* visited) {
    if (to.shape().numel() == 0) {
      internal::Path path;
      path.add({.kind = StepKind::kLocal, .mesh_dims = {}, .from = from, .to = to, .op = {}});
      return path;
    }
    std::vector<PinnedDim> only;
    for (const int m : at_zero_dims(from, to)) only.push_back({m, 0});
    const internal::PathBuilder builder(std::move(only), visited);
    return internal::find_path(builder, from, to, model);
  }
};

ReshardPlan plan(const Layout& from, const Layout& to) {
  return PlanMaker::make(from, to, nullptr);
}
ReshardPlan plan(const Layout& from, const Layout& to, const CostModel& model) {
  return PlanMaker::make(from, to, &model);
}

RankStep ReshardPlan::rank_step(int index, int rank) const {
  return dtensor::rank_step(steps_.at(static_cast<size_t>(index)), rank);
}
RankStep ReshardPlan::rank_step(int index, const Coordinate& at) const {
  return rank_step(index, from_.mesh().rank_at(at));
}

RankTraffic ReshardPlan::traffic(int rank) const {
  RankTraffic sum;
  for (const ReshardStep& step : steps_) {
    const RankTraffic one = dtensor::traffic(step, rank);
    sum.sent += one.sent;
    sum.received += one.received;
  }
  return sum;
}

std::vector<int> ReshardPlan::ranks() const {
  if (!is_between_meshes()) return from_.mesh().ranks();
  std::vector<int> all = from_.mesh().ranks();
  std::ranges::copy(to_.mesh().ranks(), std::back_inserter(all));
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::vector<RankTraffic> ReshardPlan::traffic() const {
  std::vector<RankTraffic> all;
  for (const int rank : ranks()) all.push_back(traffic(rank));
  return all;
}

int64_t ReshardPlan::most_received() const {
  int64_t most = 0;
  if (is_free()) return most;
  for (const int rank : ranks()) {
    int64_t all = 0;
    for (const ReshardStep& step : steps_) all += received(step, rank);
    most = std::max(most, all);
  }
  return most;
}

int64_t ReshardPlan::payload_minimum() const {
  return least_payload(internal::without_size_one(from_), internal::without_size_one(to_));
}

std::optional<int64_t> ReshardPlan::countable_minimum() const {
  constexpr int64_t kMostBoxes = 1 << 25;
  const Layout from = internal::without_size_one(from_);
  const Layout to = internal::without_size_one(to_);
  if (least_payload_boxes(from, to) > kMostBoxes) return std::nullopt;
  return least_payload(from, to);
}

std::vector<BoxMove> ReshardPlan::messages() const { return *messages({}, SIZE_MAX); }

std::optional<std::vector<BoxMove>> ReshardPlan::messages(std::optional<int> rank,
                                                          size_t most) const {
  const std::vector<int> asked = rank ? std::vector<int>{*rank} : ranks();
  std::vector<BoxMove> all;
  for (const ReshardStep& step : steps_) {
    if (step.kind == StepKind::kReduceScatter || step.kind == StepKind::kAllReduce) continue;
    for (const int me : asked) {
      const RankStep mine = dtensor::rank_step(step, me);
      for (const RankPiece& piece : mine.receive) all.push_back({piece.rank, me, piece.box});
      if (all.size() > most) return std::nullopt;
      if (!rank) continue;  // every piece is received once
      for (const RankPiece& piece : mine.send) all.push_back({me, piece.rank, piece.box});
      if (all.size() > most) return std::nullopt;
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

}  // namespace dtensor
