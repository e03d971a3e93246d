// Collectives over several mesh dims as several over fewer, so that slow links carry less.

#pragma once

#include "dtensor/placement/plan_path.h"
#include "dtensor/placement/topology.h"

namespace dtensor::internal {

double seconds_of(const Path& path, const CostModel& model);

// `path` with each all-gather, reduce-scatter and all-reduce over several mesh dims in the order of
// smaller ones that takes the least time. An all-gather goes from the innermost levels outwards, a
// reduce-scatter inwards, an all-reduce is a reduce-scatter over some mesh dims, an all-reduce of
// the parts over the others, and an all-gather.
Path split_collectives(const PathBuilder& builder, const Path& path, const CostModel& model);

}  // namespace dtensor::internal
