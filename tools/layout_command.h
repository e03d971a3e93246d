// `dtensor layout`: what each rank holds of a tensor.

#pragma once

#include <ostream>

#include "dtensor/tools/command.h"

namespace dtensor::tools {

int layout_command(Arguments arguments, std::ostream& out, std::ostream& err);

}  // namespace dtensor::tools
