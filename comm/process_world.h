// process_world: how ranks that are processes form a world, whatever moves their data: the store,
// the rendezvous and the control channel. A backend between processes gives its Transport.

#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/base/deadline.h"
#include "dtensor/comm/comm.h"
#include "dtensor/comm/device_mover.h"
#include "dtensor/comm/endpoint.h"
#include "dtensor/comm/rendezvous.h"
#include "dtensor/comm/secret.h"
#include "dtensor/comm/store.h"
#include "dtensor/comm/transport.h"

namespace dtensor::comm {

// What a backend has to make its Transport from.
struct JoinedWorld {
  Participant me;
  Meeting meeting;
  std::shared_ptr<Store> store;
  std::shared_ptr<const Secret> secret;  // that all ranks know; nullptr where there is none
  Deadline deadline;
};

struct ProcessBackend {
  std::string name;                  // "gloo"
  std::string version;               // of the library beneath, and what else must be equal
  std::vector<std::string> options;  // of its URL, besides those that all have
  std::function<std::shared_ptr<Transport>(const JoinedWorld&)> make_transport;
  std::shared_ptr<DeviceMover> device = {};  // for memory that is not on the CPU
  bool takes_cpu = true;
};

// The options that all such backends have: store (file:PATH or host:port), interface or address,
// liveness, shm (on, off, or the most bytes that Comm::allocate shares at one time), host (a name
// for this machine: ranks with one name share memory) and one_step (bytes up to which all-reduces
// send everything to everybody; equal on all ranks). Called by all ranks. Without `store` it is the
// one that the endpoint names. With DTENSOR_SECRET or DTENSOR_SECRET_FILE the store, the control
// channel and the peers of the Transport have to show that they know the secret
// (dtensor/comm/secret.h). ArgumentError for an option that neither all have nor this backend;
// CommError labelled "rendezvous" for a world that does not come together.
std::unique_ptr<Comm> join_world(const Endpoint& endpoint, std::shared_ptr<Store> store,
                                 const ProcessBackend& backend);

// The integer that an option says, `otherwise` where it is not there.
int64_t integer_option(const Endpoint& endpoint, const std::string& name, int64_t otherwise,
                       int64_t low, int64_t high);

}  // namespace dtensor::comm
