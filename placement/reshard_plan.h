// ReshardPlan: how a tensor goes from one layout to another: a list of steps, each between two
// layouts (dtensor/placement/reshard_step.h). The plan is what is costed and what is run. It is
// pure, and the same on every rank.
//
// On one mesh R -> S is sliced before anything moves. S -> R over any mesh dims is one all-gather
// (a broadcast where one rank has it all), S(i) -> S(j) one all-to-all, new orders, units or
// boundaries one exchange of what is lacking. P -> R is one all-reduce over all its mesh dims; P ->
// S one reduce-scatter straight to the new parts where these lie in what a rank holds, else to a
// cut chosen for the fewest bytes, and then moved. R -> P and S -> P are local and come last;
// beside another move only coordinate 0 of an R -> P(sum) or P(prod) takes part in it. Mesh dims of
// size 1 cost nothing and make no step.
//
// Between two meshes (disjoint, overlapping, reordered, of any sizes; both number the ranks of one
// root) a Partial is resolved on its own mesh, in the way that sends least; then one exchange over
// the ranks of both meshes brings what each rank lacks, or one broadcast where one rank has it all;
// and mesh dims that become Partial are filled last.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "dtensor/placement/layout.h"
#include "dtensor/placement/reshard_step.h"
#include "dtensor/placement/tiling.h"
#include "dtensor/placement/topology.h"

namespace dtensor {

class ReshardPlan {
 public:
  const Layout& from() const { return from_; }
  const Layout& to() const { return to_; }
  bool is_between_meshes() const { return !(from_.mesh() == to_.mesh()); }
  // Empty where every rank holds after what it held before: then only the label changes.
  const std::vector<ReshardStep>& steps() const { return steps_; }
  // Elements sent, over all ranks.
  int64_t payload() const { return payload_; }
  bool is_free() const { return payload_ == 0; }
  // How many parts and ranks were looked at to make the plan.
  int64_t visited() const { return visited_; }

  // The part of step `index` that a rank does.
  RankStep rank_step(int index, int rank) const;
  RankStep rank_step(int index, const Coordinate& at) const;  // of from().mesh()
  // Of all steps.
  RankTraffic traffic(int rank) const;

  // The rest goes through all ranks, at each call.
  //
  // The ranks that hold something before or after: MeshLayout::ranks() of one mesh, or those of
  // both meshes, ascending.
  std::vector<int> ranks() const;
  // By the order of ranks().
  std::vector<RankTraffic> traffic() const;
  // Elements received by the rank that receives most.
  int64_t most_received() const;
  // The least that any plan needs: every element reduced once in each group that holds it, or sent
  // once to each rank that lacks it. Computed apart from the plan.
  int64_t payload_minimum() const;
  // The same, where counting it looks at no more than 2^25 boxes (least_payload_boxes()): on large
  // meshes a Partial may take more.
  std::optional<int64_t> countable_minimum() const;
  // The moves of boxes from owner to receiver in all steps but reductions, sorted by (src, dst,
  // offset).
  std::vector<BoxMove> messages() const;
  // Of one rank, where given, what it sends and receives, without going through the others. nullopt
  // where there are more than `most`: of all ranks they may be the square of these.
  std::optional<std::vector<BoxMove>> messages(std::optional<int> rank, size_t most) const;

 private:
  friend class PlanMaker;
  Layout from_;
  Layout to_;
  std::vector<ReshardStep> steps_;
  int64_t payload_ = 0;
  int64_t visited_ = 0;
};

// Every pair of layouts of one shape, on one mesh or on two: any of R, S, P, uneven, empty, several
// mesh dims on one tensor dim. Free (no steps but local ones) exactly where no rank lacks anything.
// On one mesh it looks at parts of the cuts and not at the ranks; between two it goes once through
// the ranks that lie in both.
// PlacementError: P(a) -> P(b), two shapes. ArgumentError: more elements to send than fit in 64
// bits.
ReshardPlan plan(const Layout& from, const Layout& to);

// The same pairs, by the least time on a topology (dtensor/placement/plan_cost.h) and not the least
// payload: collectives over several mesh dims may become one after the other, so that slow links
// carry less: P,P -> R,R a reduce-scatter on the fast dim, an all-reduce on the slow one of the
// parts, an all-gather on the fast one. Never slower by the model than plan(from, to), nor, without
// P, than one direct exchange.
ReshardPlan plan(const Layout& from, const Layout& to, const CostModel& model);

}  // namespace dtensor
