// Makes `ucx` known to comm::create. Of //comm/ucx, or of //comm/ucx:registration, which also
// stands where this build has no UCX: then the URL is an error that says what to install.

#pragma once

namespace dtensor::comm::ucx {

void register_backend();

}  // namespace dtensor::comm::ucx
