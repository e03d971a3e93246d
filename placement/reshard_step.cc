#include "dtensor/placement/reshard_step.h"

#include <algorithm>
#include <array>

#include "dtensor/placement/step_holders.h"

namespace dtensor {

using internal::group_size;
using internal::holder_after;
using internal::holder_before;

std::optional<Box> box_before(const ReshardStep& step, int rank) {
  const auto at = holder_before(step, rank);
  if (!at) return std::nullopt;
  return internal::box_before_at(step, *at);
}

std::optional<Box> box_after(const ReshardStep& step, int rank) {
  const auto at = holder_after(step, rank);
  if (!at) return std::nullopt;
  return internal::box_after_at(step, *at);
}

std::string_view name_of(StepKind kind) {
  constexpr std::array<std::string_view, 7> kNames = {
      "local", "all_gather", "reduce_scatter", "all_reduce", "all_to_all", "exchange", "broadcast"};
  return kNames[static_cast<size_t>(kind)];
}

std::vector<int> group_of(const ReshardStep& step, int rank) {
  if (step.is_between_meshes()) {
    const bool takes_part = std::ranges::binary_search(*step.ranks, rank);
    return takes_part ? *step.ranks : std::vector<int>{};
  }
  const auto at = holder_after(step, rank);
  return at ? step.from.mesh().group(*at, step.mesh_dims) : std::vector<int>{};
}

int64_t received(const ReshardStep& step, int rank) {
  const auto box = box_after(step, rank);
  if (!box || step.kind == StepKind::kLocal) return 0;
  const int64_t want = box->numel();
  const int64_t n = group_size(step);
  if (step.kind == StepKind::kReduceScatter) return (n - 1) * want;
  if (step.kind == StepKind::kAllReduce) {
    // As a reduce-scatter of even parts and an all-gather of them: others' shares of the own part,
    // then the other parts.
    const int index = internal::index_in_group(step, *step.from.mesh().coordinate_of(rank));
    const int64_t own = cut({0, want}, index, static_cast<int>(n)).size();
    return (n - 1) * own + want - own;
  }
  if (step.op) {
    int64_t all = 0;
    for (const RankPiece& piece : rank_step(step, rank).receive) all += piece.box.numel();
    return all;
  }
  const auto have = box_before(step, rank);
  return have ? want - intersect(*have, *box).numel() : want;
}

RankTraffic traffic(const ReshardStep& step, int rank) {
  RankTraffic out;
  out.received = received(step, rank);
  if (step.kind == StepKind::kLocal) return out;
  if (step.kind == StepKind::kAllReduce) {
    out.sent = out.received;
    return out;
  }
  if (step.kind == StepKind::kAllGather) {
    const auto have = box_before(step, rank);
    out.sent = have ? (group_size(step) - 1) * have->numel() : 0;
    return out;
  }
  const RankStep mine = rank_step(step, rank);
  for (const RankPiece& piece : mine.send) {
    if (piece.peer != mine.me) out.sent += piece.box.numel();
  }
  return out;
}

}  // namespace dtensor
