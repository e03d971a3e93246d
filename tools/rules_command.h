// `dtensor rules`: the placement signatures of the ops.

#pragma once

#include <ostream>

#include "dtensor/tools/command.h"

namespace dtensor::tools {

// Of one op and its gradients, or of all; UsageError for an op that is not there.
int rules_command(Arguments arguments, std::ostream& out, std::ostream& err);

}  // namespace dtensor::tools
