// What stands for the backends where this build has no CUDA.

#include <fmt/format.h>

#include <memory>

#include "dtensor/base/error.h"
#include "dtensor/comm/create.h"
#include "dtensor/comm/nccl/registration.h"

namespace dtensor::comm::nccl {

void register_backend() {
  const auto factory = [](const Endpoint& e) -> std::unique_ptr<Comm> {
    throw ArgumentError(fmt::format(
        "{}:// is not in this build: install CUDA and NCCL (libnccl-dev), and build with "
        "--config=cuda; or use gloo:// or ucx://",
        e.scheme));
  };
  comm::register_backend("nccl", factory);
  comm::register_backend("hybrid", factory);
}

}  // namespace dtensor::comm::nccl
