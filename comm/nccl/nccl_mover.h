// The DeviceMover over NCCL: memory on one CUDA device per rank.
//
// A call waits for what its stream (CallOptions::stream) had when it was made, and runs on a stream
// of its Comm's own. Work::wait returns when the data is there, for every stream.

#pragma once

#include <memory>
#include <string>

#include "dtensor/comm/device_mover.h"

namespace dtensor::comm::nccl {

// How many CUDA devices there are; 0 also where there is no driver.
int device_count();
// The one that this thread has set.
int current_device();

// Error where there is no such device.
std::shared_ptr<DeviceMover> make_nccl_mover(int device);

// The version of the NCCL that runs: "2.28.9".
std::string nccl_version();

}  // namespace dtensor::comm::nccl
