#include "dtensor/comm/local/local.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <random>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/comm/algorithms/transport_comm.h"
#include "dtensor/comm/create.h"
#include "dtensor/comm/local/local_transport.h"
#include "dtensor/comm/local/meeting.h"

namespace dtensor::comm::local {
namespace {

std::string new_run_id() {
  std::random_device random;
  return fmt::format("{:%Y%m%dT%H%M%SZ}-{:08x}", fmt::gmtime(std::time(nullptr)), random());
}

}  // namespace

std::vector<std::unique_ptr<Comm>> make_world(int size, const WorldOptions& options) {
  if (size < 1) {
    throw ArgumentError(fmt::format("a local world of {} ranks; give 1 or more", size));
  }
  const auto board = options.board ? options.board : std::make_shared<Board>(size);
  const auto transports = make_transports(size, {.max_message_bytes = options.max_message_bytes});
  const std::string run_id = options.run_id.empty() ? new_run_id() : options.run_id;
  std::vector<std::unique_ptr<Comm>> world;
  for (int r = 0; r < size; ++r) {
    auto transport = transports[static_cast<size_t>(r)];
    if (options.wrap) transport = options.wrap(std::move(transport));
    auto backend = make_transport_backend({.transport = std::move(transport),
                                           .control = board->control(r),
                                           .backend = "local",
                                           .version = "1",
                                           .run_id = run_id,
                                           .generation = options.generation,
                                           .stall = options.stall,
                                           .answer = options.answer});
    world.push_back(std::make_unique<Comm>(std::move(backend), options.name));
  }
  return world;
}

void register_backend() {
  comm::register_backend("local", [](const Endpoint& endpoint) {
    std::string name = "world";
    for (const auto& [key, value] : endpoint.options) {
      if (key != "name") {
        throw ArgumentError(fmt::format("local:// has no option \"{}\"; it has name=", key));
      }
      name = value;
    }
    return meet(endpoint, name, [&] {
      return make_world(endpoint.size, {.name = name, .generation = endpoint.generation});
    });
  });
}

}  // namespace dtensor::comm::local
