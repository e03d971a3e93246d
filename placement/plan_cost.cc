#include "dtensor/placement/plan_cost.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace dtensor {
namespace {

// Where `box` begins in the row-major memory of `whole`; none where it is not one run there.
std::optional<int64_t> run_offset(const Box& whole, const Box& box) {
  int64_t offset = 0;
  int64_t inner = 1;
  bool partial = false;  // a dim is not taken whole: dims before it must have one element
  for (int d = whole.size.ndim(); d-- > 0;) {
    if (partial && box.size[d] != 1) return std::nullopt;
    partial = partial || box.size[d] != whole.size[d];
    offset += (box.offset[d] - whole.offset[d]) * inner;
    inner *= whole.size[d];
  }
  return offset;
}

int64_t not_in_one_run(const Box& whole, const std::vector<RankPiece>& pieces) {
  int64_t elements = 0;
  for (const RankPiece& p : pieces) {
    if (!run_offset(whole, p.box)) elements += p.box.numel();
  }
  return elements;
}

// Are the boxes, one after the other, the memory of `whole`?
bool are_memory(const Box& whole, const std::vector<Box>& boxes) {
  int64_t next = 0;
  for (const Box& box : boxes) {
    if (box.empty()) continue;
    if (run_offset(whole, box) != next) return false;
    next += box.numel();
  }
  return next == whole.numel();
}

// Elements packed to be sent or received apart.
int64_t staging(const ReshardStep& step, const RankStep& mine) {
  std::vector<Box> boxes;
  int64_t elements = 0;
  switch (step.kind) {
    case StepKind::kLocal:
    case StepKind::kAllReduce:
      return 0;
    case StepKind::kAllToAll:
    case StepKind::kExchange:
      return not_in_one_run(mine.have, mine.send) + not_in_one_run(mine.want, mine.receive);
    case StepKind::kReduceScatter:
      for (const RankPiece& p : mine.send) {
        boxes.push_back(p.box);
        elements += p.box.numel();
      }
      return are_memory(mine.have, boxes) ? 0 : elements;
    case StepKind::kAllGather:
    case StepKind::kBroadcast:
      if (!mine.holds_after) return 0;  // a root outside the mesh that it sends to
      break;
  }
  bool kept = mine.keep.empty();
  for (const RankPiece& p : mine.receive) {
    if (!kept && p.peer > mine.me) boxes.push_back(mine.keep[0]);
    kept = kept || p.peer > mine.me;
    boxes.push_back(p.box);
  }
  if (!kept) boxes.push_back(mine.keep[0]);
  return are_memory(mine.want, boxes) ? 0 : mine.want.numel();
}

// Does a step leave a rank's piece as it is?
bool is_kept(const ReshardStep& step, const RankStep& mine) {
  return !mine.takes_part() || (step.kind == StepKind::kLocal && mine.holds_before &&
                                mine.holds_after && mine.have == mine.want && !mine.fill_identity);
}

}  // namespace

double seconds_of(const ReshardPlan& plan, const CostModel& model) {
  double all = 0;
  for (const ReshardStep& step : plan.steps()) all += seconds_of(step, model);
  return all;
}

int64_t peak_temporary(const ReshardPlan& plan, int rank) {
  std::vector<RankStep> steps;
  size_t last = 0;  // the step that makes the rank's result
  for (const ReshardStep& step : plan.steps()) {
    steps.push_back(rank_step(step, rank));
    if (!is_kept(step, steps.back())) last = steps.size() - 1;
  }
  int64_t peak = 0;
  int64_t held = 0;  // by what an earlier step left
  for (size_t i = 0; i < steps.size(); ++i) {
    if (is_kept(plan.steps()[i], steps[i])) continue;
    const int64_t result = i == last || !steps[i].holds_after ? 0 : steps[i].want.numel();
    peak = std::max(peak, held + staging(plan.steps()[i], steps[i]) + result);
    held = result;
  }
  return peak;
}

}  // namespace dtensor
