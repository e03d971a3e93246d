// The checks of a call's arguments that one rank can make alone, before anything is sent; and what
// of them this rank has no use for.

#pragma once

#include "dtensor/comm/backend.h"
#include "dtensor/comm/call.h"

namespace dtensor::comm::internal {

// Replaces the buffers that only the root uses (`out` of reduce and gather_v, `in` of scatter_v) by
// empty ones on the other ranks: no check and no backend sees what was given there.
void drop_unused(Call& call, int rank);

// Throws ArgumentError: counts, memory, dtypes, devices, root, overlap of buffers.
void check_call(const Call& call, const Backend& backend);

}  // namespace dtensor::comm::internal
