#include "dtensor/comm/backends.h"

#include "dtensor/comm/gloo/gloo.h"
#include "dtensor/comm/local/local.h"
#include "dtensor/comm/nccl/registration.h"
#include "dtensor/comm/ucx/registration.h"

namespace dtensor::comm {

void register_all() {
  gloo::register_backend();
  local::register_backend();
  nccl::register_backend();
  ucx::register_backend();
}

}  // namespace dtensor::comm
