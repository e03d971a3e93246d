#include "dtensor/comm/nccl/nccl.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/comm/create.h"
#include "dtensor/comm/environment.h"
#include "dtensor/comm/gloo/gloo.h"
#include "dtensor/comm/nccl/nccl_mover.h"
#include "dtensor/comm/nccl/over_ucx.h"
#include "dtensor/comm/process_world.h"

namespace dtensor::comm::nccl {
namespace {

// The network of the CPU.
ProcessBackend network_of(const Endpoint& e, const std::string& name) {
  if (name == "gloo") return gloo::process_backend(e);
  if (name == "ucx") return over_ucx(e);
  throw ArgumentError(fmt::format("{}: cpu={} is none of gloo, ucx", e.scheme, name));
}

// Device 0 is also what a thread has that has set none: then the word of the launcher of this rank
// counts more. Variables that contradict each other, or are of another world, say nothing here.
int default_device(int devices, const Endpoint& endpoint) {
  const int set = current_device();
  if (set != 0 || devices < 2) return set;
  try {
    const Environment e = read_environment([](const char* name) -> const char* {
      return std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
    });
    const bool is_this = e.launched && e.rank == endpoint.rank && e.size == endpoint.size;
    return is_this ? e.local_rank % devices : set;
  } catch (const ArgumentError&) {
    return set;
  }
}

}  // namespace

void register_backend() {
  const auto factory = [](const Endpoint& e) { return connect(e); };
  comm::register_backend("nccl", factory);
  comm::register_backend("hybrid", factory);
}

std::unique_ptr<Comm> connect(const Endpoint& endpoint) { return connect(endpoint, nullptr); }

std::unique_ptr<Comm> connect(const Endpoint& endpoint, std::shared_ptr<Store> store) {
  const int devices = device_count();
  if (devices == 0) {
    throw ArgumentError(fmt::format(
        "{}:// needs a CUDA device, and this machine has none that works; `dtensor doctor` says "
        "more. Without one: gloo:// or ucx://",
        endpoint.scheme));
  }
  const bool said = endpoint.options.contains("device");
  const auto device = static_cast<int>(integer_option(
      endpoint, "device", said ? 0 : default_device(devices, endpoint), 0, devices - 1));
  const auto cpu = endpoint.options.find("cpu");
  ProcessBackend backend =
      network_of(endpoint, cpu == endpoint.options.end() ? "gloo" : cpu->second);
  backend.version = fmt::format("{} with {} {}", nccl_version(), backend.name, backend.version);
  backend.name = endpoint.scheme;
  backend.options.insert(backend.options.end(), {"device", "cpu"});
  backend.device = make_nccl_mover(device);
  backend.takes_cpu = endpoint.scheme == "hybrid";
  return join_world(endpoint, std::move(store), backend);
}

}  // namespace dtensor::comm::nccl
