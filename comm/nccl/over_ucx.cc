#include "dtensor/comm/nccl/over_ucx.h"

#include "dtensor/comm/ucx/ucx.h"

namespace dtensor::comm::nccl {

ProcessBackend over_ucx(const Endpoint& endpoint) { return ucx::process_backend(endpoint); }

}  // namespace dtensor::comm::nccl
