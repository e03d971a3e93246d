#include "dtensor/comm/gloo/gloo.h"

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/comm/algorithms/transport_comm.h"
#include "dtensor/comm/control_mesh.h"
#include "dtensor/comm/control_sockets.h"
#include "dtensor/comm/create.h"
#include "dtensor/comm/file_store.h"
#include "dtensor/comm/gloo/gloo_transport.h"
#include "dtensor/comm/rendezvous.h"
#include "dtensor/comm/socket.h"
#include "dtensor/comm/tcp_store.h"

namespace dtensor::comm::gloo {
namespace {

constexpr std::string_view kFile = "file:";

struct Options {
  std::string interface;
  std::string address;
  std::chrono::seconds liveness{10};
  int64_t max_message_bytes = 1 << 20;
};

Options options_of(const Endpoint& e) {
  Options o;
  for (const auto& [name, value] : e.options) {
    if (name == "interface") {
      o.interface = value;
    } else if (name == "address") {
      o.address = value;
    } else if (name == "liveness") {
      o.liveness = std::chrono::seconds(parse_integer(name, value, 1, 86400));
    } else if (name == "max_message") {
      o.max_message_bytes = parse_integer(name, value, kLeastMessageBytes, int64_t{1} << 30);
    } else if (name != "store") {
      throw ArgumentError(fmt::format(
          "gloo: no option \"{}\"; there are store, interface, address, liveness, max_message, "
          "rank, size, generation and timeout",
          name));
    }
  }
  return o;
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

std::shared_ptr<Store> open_store(const Endpoint& e, Deadline deadline) {
  const std::string where = store_of(e);
  if (where.empty() && e.size == 1) return make_memory_store();
  if (where.empty()) {
    throw ArgumentError(
        "gloo: no store to meet at; write gloo://host:port?... or ?store=file:PATH");
  }
  if (where.substr(0, kFile.size()) == kFile) return make_file_store(where.substr(kFile.size()));
  const internal::HostPort at = internal::parse_host_port(where);
  TcpStoreOptions o;
  o.host = at.host;
  o.port = at.port;
  o.serve = e.rank == 0;
  o.deadline = deadline;
  // A name may stand for an address that only this machine knows (Debian's 127.0.1.1).
  if (o.serve && at.host != "localhost" && !is_numeric(at.host)) o.host = "0.0.0.0";
  return make_tcp_store(o);
}

// The address that the others are given.
std::string address_of(const Endpoint& e, const Options& o) {
  if (!o.address.empty()) return o.address;
  if (!o.interface.empty()) return internal::address_of_interface(o.interface);
  const std::string where = store_of(e);
  if (where.empty() || where.substr(0, kFile.size()) == kFile) return "127.0.0.1";
  return internal::address_towards(internal::parse_host_port(where));
}

[[noreturn]] void fail(const Endpoint& e, CommErrorKind kind, int culprit,
                       const std::string& detail) {
  CommError::Fields f;
  f.kind = kind;
  f.culprit = culprit;
  f.op.label = "rendezvous";
  f.comm = "world";
  f.size = e.size;
  f.detail = detail;
  throw CommError(std::move(f));
}

}  // namespace

void register_backend() {
  comm::register_backend("gloo", [](const Endpoint& e) { return connect(e); });
}

std::unique_ptr<Comm> connect(const Endpoint& endpoint) {
  Endpoint e = endpoint;
  e.deadline = endpoint.deadline.resolved();
  options_of(e);  // before anybody is waited for
  std::shared_ptr<Store> store;
  try {
    store = open_store(e, e.deadline);
  } catch (const ArgumentError&) {
    throw;
  } catch (const Error& error) {
    fail(e, CommErrorKind::kTimeout, e.rank == 0 ? -1 : 0, error.what());
  }
  return connect(e, std::move(store));
}

std::unique_ptr<Comm> connect(const Endpoint& endpoint, std::shared_ptr<Store> store) {
  const Options options = options_of(endpoint);
  const Deadline deadline = endpoint.deadline.resolved();
  Participant me;
  me.rank = endpoint.rank;
  me.size = endpoint.size;
  me.generation = endpoint.generation;
  me.backend = "gloo";
  me.backend_version = gloo_version();
  try {
    me.address = address_of(endpoint, options);
    const Meeting meeting = meet(*store, me, deadline);
    auto peers = internal::connect_control_mesh(
        internal::listen_on(me.address, 0), *store,
        {me.rank, me.size, meeting.run_id, meeting.key_prefix, deadline});
    auto control = make_control_sockets(std::move(peers), {me.rank, options.liveness});
    GlooTransportOptions o;
    o.rank = me.rank;
    o.size = me.size;
    o.address = me.address;
    o.token = meeting.run_id;
    o.key_prefix = meeting.key_prefix;
    o.max_message_bytes = options.max_message_bytes;
    o.deadline = deadline;
    WorldParts parts;
    parts.transport = make_gloo_transport(std::move(store), o);
    parts.control = std::move(control);
    parts.backend = me.backend;
    parts.version = me.backend_version;
    parts.run_id = meeting.run_id;
    parts.generation = me.generation;
    return std::make_unique<Comm>(make_transport_backend(std::move(parts)), "world");
  } catch (const CommError&) {
    throw;
  } catch (const ArgumentError&) {
    throw;
  } catch (const Error& e) {
    fail(endpoint, CommErrorKind::kTimeout, -1, e.what());
  }
}

}  // namespace dtensor::comm::gloo
