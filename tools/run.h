// `dtensor run`: starts a program as local ranks.

#pragma once

#include <iosfwd>
#include <span>
#include <string>

namespace dtensor::tools {

// `args` are those after "run": -n 4 [--comm gloo] [--plain] [--timeout SECONDS] [--json] --
// PROGRAM ARGS. Returns the run's status (dtensor/comm/launch.h), 2 for wrong usage.
int run_command(std::span<const std::string> args, std::ostream& out, std::ostream& err);

}  // namespace dtensor::tools
