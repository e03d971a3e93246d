#include "dtensor/base/error.h"
#include "dtensor/comm/nccl/over_ucx.h"

namespace dtensor::comm::nccl {

ProcessBackend over_ucx(const Endpoint&) {
  throw ArgumentError(
      "cpu=ucx: UCX is not in this build: apt-get install libucx-dev, and build again; or "
      "cpu=gloo");
}

}  // namespace dtensor::comm::nccl
