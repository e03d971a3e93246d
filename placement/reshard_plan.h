// ReshardPlan: how a tensor goes from one layout to another on the same mesh: a list of steps,
// each between two layouts (dtensor/placement/reshard_step.h). The plan is what is costed and what
// is run. It is pure, and the same on every rank.
//
// R -> S is sliced before anything moves. S -> R over any mesh dims is one all-gather, S(i) -> S(j)
// one all-to-all, new orders, units or boundaries one exchange of what is lacking. P -> R is one
// all-reduce over all its mesh dims; P -> S one reduce-scatter straight to the new parts where
// these lie in what a rank holds, else to a cut chosen for the fewest bytes, and then moved. R -> P
// and S -> P are local and come last. Mesh dims of size 1 cost nothing and make no step.

#pragma once

#include <cstdint>
#include <vector>

#include "dtensor/placement/layout.h"
#include "dtensor/placement/reshard_step.h"
#include "dtensor/placement/tiling.h"

namespace dtensor {

class ReshardPlan {
 public:
  const Layout& from() const { return from_; }
  const Layout& to() const { return to_; }
  // Empty where every rank holds after what it held before: then only the label changes.
  const std::vector<ReshardStep>& steps() const { return steps_; }
  // Elements sent, over all ranks.
  int64_t payload() const { return payload_; }
  // The least that any plan needs: every element reduced once in each group that holds it, or sent
  // once to each rank that lacks it. Computed by this call, apart from the plan.
  int64_t payload_minimum() const;
  // Elements received by the rank that receives most.
  int64_t most_received() const { return most_received_; }
  bool is_free() const { return payload_ == 0; }
  // Of all steps, by the order of MeshLayout::ranks().
  std::vector<RankTraffic> traffic() const;
  // The moves of boxes from owner to receiver in all steps but reductions, sorted by (src, dst,
  // offset).
  std::vector<BoxMove> messages() const;

  // The part of step `index` that the rank at a coordinate does.
  RankStep rank_step(int index, const Coordinate& at) const;

 private:
  friend ReshardPlan plan(const Layout& from, const Layout& to);
  Layout from_;
  Layout to_;
  std::vector<ReshardStep> steps_;
  int64_t payload_ = 0;
  int64_t most_received_ = 0;
};

// Every pair of layouts of one shape on one mesh: any of R, S, P, uneven, empty, several mesh dims
// on one tensor dim. Free (no steps but local ones) exactly where no rank lacks anything.
// PlacementError: P(a) -> P(b), two meshes, two shapes.
ReshardPlan plan(const Layout& from, const Layout& to);

}  // namespace dtensor
