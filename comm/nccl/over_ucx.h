// UCX as the network of the CPU beside NCCL, where this build has it.

#pragma once

#include "dtensor/comm/endpoint.h"
#include "dtensor/comm/process_world.h"

namespace dtensor::comm::nccl {

// ArgumentError where it has not.
ProcessBackend over_ucx(const Endpoint& endpoint);

}  // namespace dtensor::comm::nccl
