// What a plan costs: seconds on a Topology, and the memory that a rank takes for a while.
// Its payload is in the plan itself; a rank's payload and wire bytes are its RankTraffic times the
// size of an element, and of an element on the wire.

#pragma once

#include <cstdint>

#include "dtensor/placement/reshard_plan.h"
#include "dtensor/placement/step_cost.h"
#include "dtensor/placement/topology.h"

namespace dtensor {

double seconds_of(const ReshardPlan& plan, const CostModel& model);  // one step after the other

// Elements of memory that a rank takes at most at one time while the plan runs, besides its piece
// of `from` (taken as contiguous) and the one it gets of `to`:
//   - what a step leaves for the next;
//   - of an exchange or all-to-all, the boxes sent or received that are not one run of memory;
//   - of an all-gather or broadcast the whole result, of a reduce-scatter all that is sent, where
//     its boxes in the order of the group are not the memory itself.
// What a Comm takes inside a collective is not counted.
int64_t peak_temporary(const ReshardPlan& plan, int rank);

}  // namespace dtensor
