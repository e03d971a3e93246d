// The backend `gloo`: ranks that are processes (or threads), over TCP.
//
//   gloo://host:port?rank=0&size=4      the store is served by rank 0 at host:port
//   gloo://?rank=0&size=4&store=file:/tmp/run7
//
// Options: store (file:PATH or host:port), interface (eth0) or address (numeric, to bind; without
// either the address from which the store's host is reached, 127.0.0.1 with a file store), liveness
// (seconds of silence after which a rank is lost, 10), max_message (bytes, 1048576), shm (on, off,
// or bytes of room for Comm::allocate), host (a name for this machine: ranks with one name share
// memory), one_step (bytes up to which all-reduces send everything to everybody), trace (directory
// of traces), generation, timeout (seconds, of the rendezvous).

#pragma once

#include <memory>

#include "dtensor/comm/comm.h"
#include "dtensor/comm/endpoint.h"
#include "dtensor/comm/process_world.h"
#include "dtensor/comm/store.h"

namespace dtensor::comm::gloo {

// Makes `gloo` known to comm::create.
void register_backend();

// What comm::create does for a gloo URL. Called by all ranks.
std::unique_ptr<Comm> connect(const Endpoint& endpoint);
// The same at a store that the caller has: for ranks that are threads.
std::unique_ptr<Comm> connect(const Endpoint& endpoint, std::shared_ptr<Store> store);

// What connect() joins a world by: for backends that add to it.
ProcessBackend process_backend(const Endpoint& endpoint);

}  // namespace dtensor::comm::gloo
