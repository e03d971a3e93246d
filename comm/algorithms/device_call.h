// Calls whose data a DeviceMover moves: what the ranks tell each other on the CPU before.

#pragma once

#include <string>

#include "dtensor/comm/algorithms/session.h"
#include "dtensor/comm/call.h"

namespace dtensor::comm {

// Is any of the call's memory on another device than the CPU?
bool on_device(const Call& call);

// The first step: returns when all ranks are in this call; throws CallsDiffer as run_collective
// does. Counts that only two ranks share are compared by these two.
void agree_on_device_call(Session& session, const Call& call);

// The bytes that this rank has to send at least.
int64_t device_payload(const Call& call, int rank, int size);

// What rank 0 gives, on all ranks. After the first step of a call. `mine` has kIdentityBytes.
std::string from_rank_0(Session& session, std::string mine);

}  // namespace dtensor::comm
