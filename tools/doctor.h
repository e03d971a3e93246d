// `dtensor doctor`: what works on this machine, and why something does not.

#pragma once

#include "dtensor/tools/command.h"

namespace dtensor::tools {

// [--peers host:port,...] [--json]. Status 1 where a backend of this build, shared memory, the
// loopback address or a peer does not work; what this build or machine merely lacks is told and
// is no finding.
int doctor_command(Arguments arguments, std::ostream& out, std::ostream& err);

}  // namespace dtensor::tools
