// Makes `nccl` and `hybrid` known to comm::create. Of //comm/nccl, or of //comm/nccl:registration,
// which also stands where this build has no CUDA: then the URLs are errors that say what to do.

#pragma once

namespace dtensor::comm::nccl {

void register_backend();

}  // namespace dtensor::comm::nccl
