// The backend `ucx`: ranks that are processes (or threads), over UCX: by TCP, or by what `tls`
// names.
//
//   ucx://host:port?rank=0&size=4       the store is served by rank 0 at host:port
//   ucx://?rank=0&size=4&store=file:/tmp/run7&tls=posix,self,tcp
//
// Options: those of gloo (dtensor/comm/gloo/gloo.h), and tls: the transports that UCX may use, in
// its own words, else `self,tcp`; equal on all ranks.

#pragma once

#include <memory>

#include "dtensor/comm/comm.h"
#include "dtensor/comm/endpoint.h"
#include "dtensor/comm/process_world.h"
#include "dtensor/comm/store.h"
#include "dtensor/comm/ucx/registration.h"

namespace dtensor::comm::ucx {

// What comm::create does for a ucx URL. Called by all ranks.
std::unique_ptr<Comm> connect(const Endpoint& endpoint);
// The same at a store that the caller has: for ranks that are threads.
std::unique_ptr<Comm> connect(const Endpoint& endpoint, std::shared_ptr<Store> store);

// What connect() joins a world by: for backends that add to it.
ProcessBackend process_backend(const Endpoint& endpoint);

}  // namespace dtensor::comm::ucx
