#include "dtensor/comm/create.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/comm/root.h"

namespace dtensor::comm {
namespace {

// The one registry: what the program linked and named. Written at start-up, before ranks run.
struct Registry {
  std::mutex mutex;
  std::map<std::string, Factory, std::less<>> factories;  // guarded by mutex
};

Registry& registry() {
  static Registry instance;
  return instance;
}

Factory factory_of(std::string_view scheme) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const auto it = r.factories.find(scheme);
  if (it != r.factories.end()) return it->second;
  std::vector<std::string> known;
  for (const auto& [other, unused] : r.factories) known.push_back(other + "://");
  throw ArgumentError(
      fmt::format("no backend for {}://; known are: {}. Register one first: comm::register_all()",
                  scheme, known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "))));
}

}  // namespace

void register_backend(std::string_view scheme, Factory factory) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  r.factories.insert_or_assign(std::string(scheme), std::move(factory));
}

void check_backend(std::string_view scheme_or_url) {
  const bool is_url = scheme_or_url.find("://") != std::string_view::npos;
  static_cast<void>(factory_of(is_url ? parse_url(scheme_or_url).scheme : scheme_or_url));
}

std::unique_ptr<Comm> create(std::string_view url) { return create(parse_url(url)); }

std::unique_ptr<Comm> create(const Endpoint& endpoint) {
  Endpoint e = endpoint;
  const char* variable = getenv("DTENSOR_TRACE_DIR");  // NOLINT(concurrency-mt-unsafe): as below
  std::string traces = variable == nullptr ? "" : variable;
  if (const auto it = e.options.find("trace"); it != e.options.end()) {
    traces = it->second;
    e.options.erase(it);
  }
  auto comm = factory_of(e.scheme)(e);
  if (!comm) return comm;
  comm->set_trace_directory(std::move(traces));
  set_root(*comm);
  return comm;
}

Endpoint endpoint_of(const Environment& environment) {
  if (!environment.launched) {
    Endpoint alone;
    alone.scheme = "local";
    return alone;
  }
  Endpoint e = parse_url_of_launched(environment.comm.empty() ? "gloo" : environment.comm,
                                     environment.rank, environment.size, environment.generation);
  if (e.host.empty() && e.options.count("store") == 0) {
    if (environment.store.empty() && e.size > 1) {
      throw ArgumentError(fmt::format(
          "rank {} of {} has no store to meet the others at: set DTENSOR_STORE to host:port (rank "
          "0's) or to file:PATH, or MASTER_ADDR and MASTER_PORT",
          e.rank, e.size));
    }
    if (!environment.store.empty()) e.options["store"] = environment.store;
  }
  // What the URL says of this rank counts more.
  const bool says = e.options.count("interface") + e.options.count("address") != 0;
  if (e.scheme != "local" && !says) {
    if (!environment.interface.empty()) e.options["interface"] = environment.interface;
    if (!environment.address.empty()) e.options["address"] = environment.address;
  }
  return e;
}

std::unique_ptr<Comm> from_environment() {
  // Read once, before the program's threads may change the environment.
  return create(
      endpoint_of(read_environment([](const char* name) -> const char* { return getenv(name); })));
}

}  // namespace dtensor::comm
