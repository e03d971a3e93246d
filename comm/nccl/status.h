// What CUDA and NCCL answer, as exceptions.

#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include <string_view>

#include "dtensor/base/error.h"

namespace dtensor::comm::nccl {

inline void check(cudaError_t status, std::string_view what) {
  if (status != cudaSuccess) {
    throw Error(fmt::format("nccl: {}: CUDA says {}", what, cudaGetErrorString(status)));
  }
}

// A communicator that does not block may answer "in progress": its state tells the rest.
inline void check(ncclResult_t status, std::string_view what) {
  if (status != ncclSuccess && status != ncclInProgress) {
    throw Error(fmt::format("nccl: {}: {}", what, ncclGetErrorString(status)));
  }
}

// Works on a device; afterwards the thread has the one that it had.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    cudaGetDevice(&before_);
    check(cudaSetDevice(device), "device");
  }
  ~OnDevice() { cudaSetDevice(before_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
};

}  // namespace dtensor::comm::nccl
