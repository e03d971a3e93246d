// The checks of a call's arguments that one rank can make alone, before anything is sent.

#pragma once

#include <span>

#include "dtensor/comm/backend.h"

namespace dtensor::comm::internal {

// Throws ArgumentError: counts, memory, dtypes, devices, root, overlap of buffers.
void check_call(const Call& call, const Backend& backend);

}  // namespace dtensor::comm::internal
