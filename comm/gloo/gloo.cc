#include "dtensor/comm/gloo/gloo.h"

#include <string>
#include <utility>

#include "dtensor/comm/create.h"
#include "dtensor/comm/gloo/gloo_transport.h"
#include "dtensor/comm/process_world.h"

namespace dtensor::comm::gloo {

void register_backend() {
  comm::register_backend("gloo", [](const Endpoint& e) { return connect(e); });
}

ProcessBackend process_backend(const Endpoint& endpoint) {
  const int64_t max_message = integer_option(endpoint, "max_message", int64_t{1} << 20,
                                             kLeastMessageBytes, int64_t{1} << 30);
  ProcessBackend backend;
  backend.name = "gloo";
  backend.version = gloo_version();
  backend.options = {"max_message"};
  backend.make_transport = [=](const JoinedWorld& world) {
    GlooTransportOptions o;
    o.rank = world.me.rank;
    o.size = world.me.size;
    o.address = world.me.address;
    o.token = world.meeting.run_id;
    o.key_prefix = world.meeting.key_prefix;
    o.max_message_bytes = max_message;
    o.deadline = world.deadline;
    return make_gloo_transport(world.store, o);
  };
  return backend;
}

std::unique_ptr<Comm> connect(const Endpoint& endpoint) { return connect(endpoint, nullptr); }

std::unique_ptr<Comm> connect(const Endpoint& endpoint, std::shared_ptr<Store> store) {
  return join_world(endpoint, std::move(store), process_backend(endpoint));
}

}  // namespace dtensor::comm::gloo
