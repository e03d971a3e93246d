// enqueue: one call of a Comm as one group of NCCL calls.

#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "dtensor/comm/call.h"

namespace dtensor::comm::nccl {

struct Place {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  int rank = 0;
  int size = 1;
};

// Puts the data movement of a call on the stream. Equal segments are NCCL's own gather and
// reduce-scatter. Ragged ones are a broadcast, or a reduction, per segment: nothing is padded, and
// by NCCL's rings no rank sends more than the whole, where sends to each would have the rank with
// the most send that size - 1 times. Gathers to a root and exchanges are sends and receives; what a
// rank sends itself is a copy. Nothing is said of segments without elements. Throws Error.
void enqueue(const Call& call, const Place& at);

}  // namespace dtensor::comm::nccl
