// The subcommands of `dtensor checkpoint`. Each takes what follows its name, and returns the exit
// status; UsageError and the errors of the library are thrown. Internal.

#pragma once

#include <functional>
#include <ostream>
#include <span>
#include <string>

#include "dtensor/tools/command.h"

namespace dtensor::tools {

int checkpoint_ls(Arguments arguments, std::ostream& out, std::ostream& err);
int checkpoint_verify(Arguments arguments, std::ostream& out, std::ostream& err);
int checkpoint_merge(Arguments arguments, std::ostream& out, std::ostream& err);
int checkpoint_reshard(Arguments arguments, std::ostream& out, std::ostream& err);
int checkpoint_import(Arguments arguments, std::ostream& out, std::ostream& err);
int checkpoint_export(Arguments arguments, std::ostream& out, std::ostream& err);
int checkpoint_diff(Arguments arguments, std::ostream& out, std::ostream& err);

}  // namespace dtensor::tools
