#include "dtensor/comm/process_world.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/comm/algorithms/transport_comm.h"
#include "dtensor/comm/control_mesh.h"
#include "dtensor/comm/control_sockets.h"
#include "dtensor/comm/file_store.h"
#include "dtensor/comm/greeting.h"
#include "dtensor/comm/sealed_store.h"
#include "dtensor/comm/secret.h"
#include "dtensor/comm/shm/neighbours.h"
#include "dtensor/comm/socket.h"
#include "dtensor/comm/tcp_store.h"

namespace dtensor::comm {
namespace {

constexpr std::string_view kFile = "file:";
constexpr int64_t kLiveness = 10;  // seconds
constexpr int64_t kDay = 86400;
constexpr int64_t kMostOneStep = int64_t{1} << 40;

std::string option(const Endpoint& e, const std::string& name, const std::string& otherwise = {}) {
  const auto it = e.options.find(name);
  return it == e.options.end() ? otherwise : it->second;
}

void check_options(const Endpoint& e, const ProcessBackend& backend) {
  std::vector<std::string> known = {"store", "interface", "address", "liveness",
                                    "shm",   "host",      "one_step"};
  known.insert(known.end(), backend.options.begin(), backend.options.end());
  for (const auto& [name, value] : e.options) {
    if (std::ranges::find(known, name) != known.end()) continue;
    throw ArgumentError(
        fmt::format("{}: no option \"{}\"; there are {}, rank, size, generation and timeout",
                    backend.name, name, fmt::join(known, ", ")));
  }
  integer_option(e, "liveness", kLiveness, 1, kDay);
  shm::parse_arena_bytes(option(e, "shm", "on"));
  integer_option(e, "one_step", 0, 0, kMostOneStep);
}

std::string store_of(const Endpoint& e) {
  const auto it = e.options.find("store");
  if (it != e.options.end()) return it->second;
  return e.host.empty() ? std::string() : internal::to_string({e.host, e.port});
}

bool is_numeric(const std::string& host) {
  return host.find_first_not_of("0123456789.") == std::string::npos ||
         host.find(':') != std::string::npos;
}

using SecretPtr = std::shared_ptr<const Secret>;

std::shared_ptr<Store> open_store(const Endpoint& e, const std::string& backend,
                                  const SecretPtr& secret, Deadline deadline) {
  const std::string where = store_of(e);
  if (where.empty() && e.size == 1) return make_memory_store();
  if (where.empty()) {
    throw ArgumentError(fmt::format(
        "{0}: no store to meet at; write {0}://host:port?... or ?store=file:PATH", backend));
  }
  if (where.substr(0, kFile.size()) == kFile) return make_file_store(where.substr(kFile.size()));
  const internal::HostPort at = internal::parse_host_port(where);
  TcpStoreOptions o;
  o.host = at.host;
  o.port = at.port;
  o.serve = e.rank == 0;
  o.deadline = deadline;
  o.secret = secret;
  // A name may stand for an address that only this machine knows (Debian's 127.0.1.1).
  if (o.serve && at.host != "localhost" && !is_numeric(at.host)) o.host = "0.0.0.0";
  return make_tcp_store(o);
}

// The address that the others are given.
std::string address_of(const Endpoint& e) {
  if (std::string address = option(e, "address"); !address.empty()) return address;
  if (const std::string interface = option(e, "interface"); !interface.empty()) {
    return internal::address_of_interface(interface);
  }
  const std::string where = store_of(e);
  if (where.empty() || where.substr(0, kFile.size()) == kFile) return "127.0.0.1";
  return internal::address_towards(internal::parse_host_port(where));
}

[[noreturn]] void fail(const Endpoint& e, int culprit, const std::string& detail) {
  CommError::Fields f;
  f.kind = CommErrorKind::kTimeout;
  f.culprit = culprit;
  f.op.label = "rendezvous";
  f.comm = "world";
  f.size = e.size;
  f.detail = detail;
  throw CommError(std::move(f));
}

std::unique_ptr<Comm> join(const Endpoint& e, std::shared_ptr<Store> store,
                           const ProcessBackend& backend, const SecretPtr& secret,
                           Deadline deadline) {
  JoinedWorld world;
  world.deadline = deadline;
  world.secret = secret;
  world.store = secret ? make_sealed_store(std::move(store), secret) : std::move(store);
  world.me.rank = e.rank;
  world.me.size = e.size;
  world.me.generation = e.generation;
  world.me.backend = backend.name;
  world.me.backend_version = backend.version;
  // What all ranks must have alike.
  const std::string one_step = option(e, "one_step");
  if (!one_step.empty()) world.me.backend_version += " one_step=" + one_step;
  world.me.address = address_of(e);
  world.meeting = meet(*world.store, world.me, deadline);
  auto peers = internal::connect_control_mesh(
      internal::listen_on(world.me.address, 0), *world.store,
      {e.rank, e.size, world.meeting.run_id, world.meeting.key_prefix, deadline, secret});
  const std::chrono::seconds liveness(integer_option(e, "liveness", kLiveness, 1, kDay));
  auto control = make_control_sockets(std::move(peers), {e.rank, liveness});
  WorldParts parts;
  parts.neighbours = shm::Neighbours::meet(
      *world.store, {.rank = e.rank,
                     .size = e.size,
                     .host = option(e, "host", world.me.host),
                     .key_prefix = world.meeting.key_prefix,
                     .arena_bytes = shm::parse_arena_bytes(option(e, "shm", "on")),
                     .deadline = deadline});
  if (!one_step.empty()) {
    parts.one_step_bytes = integer_option(e, "one_step", 0, 0, kMostOneStep);
  }
  parts.transport = backend.make_transport(world);
  if (secret) {
    internal::challenge_all(*parts.transport, world.meeting.run_id, *secret, deadline);
  }
  parts.control = std::move(control);
  parts.backend = backend.name;
  parts.version = backend.version;
  parts.run_id = world.meeting.run_id;
  parts.generation = e.generation;
  parts.device = backend.device;
  parts.takes_cpu = backend.takes_cpu;
  return std::make_unique<Comm>(make_transport_backend(std::move(parts)), "world");
}

}  // namespace

int64_t integer_option(const Endpoint& endpoint, const std::string& name, int64_t otherwise,
                       int64_t low, int64_t high) {
  const auto it = endpoint.options.find(name);
  return it == endpoint.options.end() ? otherwise : parse_integer(name, it->second, low, high);
}

std::unique_ptr<Comm> join_world(const Endpoint& endpoint, std::shared_ptr<Store> store,
                                 const ProcessBackend& backend) {
  check_options(endpoint, backend);  // before anybody is waited for
  const SecretPtr secret = secret_of_environment();
  const Deadline deadline = endpoint.deadline.resolved();
  const auto translated = [&](int culprit, const auto& step) {
    try {
      return step();
    } catch (const CommError&) {
      throw;
    } catch (const ArgumentError&) {
      throw;
    } catch (const Error& error) {
      fail(endpoint, culprit, error.what());
    }
  };
  if (store == nullptr) {
    store = translated(endpoint.rank == 0 ? -1 : 0,
                       [&] { return open_store(endpoint, backend.name, secret, deadline); });
  }
  return translated(-1,
                    [&] { return join(endpoint, std::move(store), backend, secret, deadline); });
}

}  // namespace dtensor::comm
