// What stands for the backend where this build has no UCX.

#include <memory>

#include "dtensor/base/error.h"
#include "dtensor/comm/create.h"
#include "dtensor/comm/ucx/registration.h"

namespace dtensor::comm::ucx {

void register_backend() {
  comm::register_backend("ucx", [](const Endpoint&) -> std::unique_ptr<Comm> {
    throw ArgumentError(
        "ucx:// is not in this build: apt-get install libucx-dev, and build again; or use gloo://");
  });
}

}  // namespace dtensor::comm::ucx
