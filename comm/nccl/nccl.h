// The backends of CUDA memory, one device per rank: a process each.
//
//   nccl://host:port?rank=0&size=4               CUDA memory by NCCL, and nothing else
//   hybrid://host:port?rank=0&size=4&cpu=ucx     also CPU memory, by gloo or ucx: one Comm
//
// Which call all ranks are in, where they are, and who is lost, they tell each other on the CPU, as
// in every other world: NCCL moves the data of calls that all have agreed on.
//
// Options: those of gloo (and of ucx with cpu=ucx), and device: the CUDA device of this rank, by
// default the one that the connecting thread has set (cudaSetDevice); where that is 0, as without
// setting one, and a launcher started the process, the rank on this machine modulo the devices.

#pragma once

#include <memory>

#include "dtensor/comm/comm.h"
#include "dtensor/comm/endpoint.h"
#include "dtensor/comm/nccl/registration.h"
#include "dtensor/comm/store.h"

namespace dtensor::comm::nccl {

// What comm::create does for both URLs. Called by all ranks. ArgumentError where this machine has
// no CUDA device.
std::unique_ptr<Comm> connect(const Endpoint& endpoint);
// The same at a store that the caller has.
std::unique_ptr<Comm> connect(const Endpoint& endpoint, std::shared_ptr<Store> store);

}  // namespace dtensor::comm::nccl
