// Which network interface has an address.

#pragma once

#include <string>

namespace dtensor::comm::ucx {

// The name of the interface that has this numeric address: "lo" of 127.0.0.1. Error where none has
// it.
std::string device_of_address(const std::string& address);

}  // namespace dtensor::comm::ucx
