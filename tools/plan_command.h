// `dtensor plan`: how a tensor goes from one layout to another, and what that sends.

#pragma once

#include <ostream>

#include "dtensor/tools/command.h"

namespace dtensor::tools {

int plan_command(Arguments arguments, std::ostream& out, std::ostream& err);

}  // namespace dtensor::tools
