// The collectives, over a Session.

#pragma once

#include "dtensor/comm/algorithms/session.h"
#include "dtensor/comm/call.h"

namespace dtensor::comm {

// Runs one call to its end on this rank. What it sends depends on the call's counts and the number
// of ranks only, and reductions go in the order of ranks: the same bits everywhere, on every run.
void run_collective(Session& session, const Call& call);

}  // namespace dtensor::comm
