// `dtensor comm-bench`: how fast the collectives of a backend are, between the ranks that a
// launcher started.

#pragma once

#include <ostream>

#include "dtensor/tools/command.h"

namespace dtensor::tools {

// All ranks run it; rank 0 prints. UsageError where no launcher started this process.
int comm_bench_command(Arguments arguments, std::ostream& out, std::ostream& err);

}  // namespace dtensor::tools
