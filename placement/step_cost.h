// The time that a step takes on a Topology.

#pragma once

#include "dtensor/placement/reshard_step.h"
#include "dtensor/placement/topology.h"

namespace dtensor {

// (messages of a rank) * latency + (bytes that a rank receives) / bandwidth, of the slowest link
// among the mesh dims of the step. Messages of a rank in a group of n: n - 1, of an all-reduce
// 2(n - 1), of a broadcast ceil(log2 n); between meshes of m > k ranks ceil(m / k). Bytes are the
// mean over the ranks that take part: parts differ by a unit at most. Local work takes no time.
double seconds_of(const ReshardStep& step, const CostModel& model);

}  // namespace dtensor
