// The rank's root Comm, a slot of its Context: what concerns the whole world and is given no Comm,
// as saving a checkpoint, takes rank and size from it.

#pragma once

#include "dtensor/comm/comm.h"

namespace dtensor::comm {

// The Comm that this Context's rank made last by comm::create or from_environment; where it made
// none (threads are handed theirs), that of its first DeviceMesh. nullptr where there is none, or
// it has ended.
Comm* root();

// Makes `comm` the root of the Context that is bound now. Where ranks are processes of one host,
// its allocator takes large blocks from Comm::large_blocks from now on.
void set_root(const Comm& comm);

}  // namespace dtensor::comm
