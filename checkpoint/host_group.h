// The ranks of one host. Internal.

#pragma once

#include <memory>
#include <string>

#include "dtensor/checkpoint/world.h"
#include "dtensor/comm/comm.h"

namespace dtensor::checkpoint {

// The Comm of the ranks that gave the same `host` as this one; where it is empty, the machine's
// name and boot counts. A collective of the world: one broadcast, one all-gather of a number.
// nullptr where this rank is alone.
std::unique_ptr<comm::Comm> host_group(const World& world, const std::string& host);

}  // namespace dtensor::checkpoint
