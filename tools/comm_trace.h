// `dtensor comm-trace`: who waits for whom, from the traces that Comms have written.

#pragma once

#include "dtensor/tools/command.h"

namespace dtensor::tools {

// PATH ... [--json]: trace files, or directories of them. Status 1 where a rank waits for another,
// or ranks make different calls.
int comm_trace_command(Arguments arguments, std::ostream& out, std::ostream& err);

}  // namespace dtensor::tools
