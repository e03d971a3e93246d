#include "dtensor/comm/ucx/ucx.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/comm/create.h"
#include "dtensor/comm/process_world.h"
#include "dtensor/comm/ucx/ucx_transport.h"

namespace dtensor::comm::ucx {
namespace {

// Transports that read another process's memory, and names of UCX that stand for several with
// these among them: a peer that dies then ends this process.
constexpr std::string_view kRefused[] = {"all", "cma", "knem", "xpmem", "shm", "sm"};

std::string transports_of(const Endpoint& e) {
  const auto it = e.options.find("tls");
  if (it == e.options.end()) return "self,tcp";
  std::string_view rest = it->second;
  while (true) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view name = rest.substr(0, comma);
    if (name.empty() || name.front() == '^' ||
        std::ranges::find(kRefused, name) != std::end(kRefused)) {
      throw ArgumentError(fmt::format(
          "ucx: tls={} is refused: \"{}\" is or may be a transport that ends a process whose peer "
          "dies; name single ones, as in tls=self,tcp",
          it->second, name));
    }
    if (comma == rest.size()) return it->second;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace

void register_backend() {
  comm::register_backend("ucx", [](const Endpoint& e) { return connect(e); });
}

ProcessBackend process_backend(const Endpoint& endpoint) {
  const int64_t max_message = integer_option(endpoint, "max_message", int64_t{1} << 20,
                                             kLeastMessageBytes, int64_t{1} << 30);
  const std::string transports = transports_of(endpoint);
  ProcessBackend backend;
  backend.name = "ucx";
  // UCX cannot connect two ranks that have no transport in common.
  backend.version = fmt::format("{} with {}", ucx_version(), transports);
  backend.options = {"max_message", "tls"};
  backend.make_transport = [=](const JoinedWorld& world) {
    UcxTransportOptions o;
    o.rank = world.me.rank;
    o.size = world.me.size;
    o.transports = transports;
    o.address = world.me.address;
    o.token = world.meeting.run_id;
    o.key_prefix = world.meeting.key_prefix;
    o.max_message_bytes = max_message;
    o.secret = world.secret;
    o.deadline = world.deadline;
    return make_ucx_transport(world.store, o);
  };
  return backend;
}

std::unique_ptr<Comm> connect(const Endpoint& endpoint) { return connect(endpoint, nullptr); }

std::unique_ptr<Comm> connect(const Endpoint& endpoint, std::shared_ptr<Store> store) {
  return join_world(endpoint, std::move(store), process_backend(endpoint));
}

}  // namespace dtensor::comm::ucx
