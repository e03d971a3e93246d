// How threads that make their Comms by URL find each other.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/comm/comm.h"
#include "dtensor/comm/endpoint.h"

namespace dtensor::comm::local {

// Waits until all ranks of the world `name` (of one generation) have come, and returns this rank's
// Comm, of those that `make` gave to the first. Throws ArgumentError where the sizes differ or a
// rank comes twice, CommError (Timeout) naming an absent rank.
std::unique_ptr<Comm> meet(const Endpoint& endpoint, const std::string& name,
                           const std::function<std::vector<std::unique_ptr<Comm>>()>& make);

}  // namespace dtensor::comm::local
