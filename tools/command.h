// Command: one subcommand of the `dtensor` program. A command is a file with one function; the
// list in dtensor.cc names it. Exit status: 0 what was asked is so, 1 a finding, 2 wrong usage.

#pragma once

#include <ostream>
#include <span>
#include <string>
#include <string_view>

#include "dtensor/base/error.h"

namespace dtensor::tools {

using Arguments = std::span<const std::string>;  // without the program and the command

struct Command {
  std::string_view name;     // "checkpoint"
  std::string_view usage;    // what stands behind the name: "--shape 11,4 LAYOUT [--json]"
  std::string_view summary;  // one line
  // Returns the exit status. May throw: UsageError is 2, HelpRequest 0, any other exception 1, with
  // the message on `err`.
  int (*run)(Arguments arguments, std::ostream& out, std::ostream& err);
};

class UsageError : public Error {
 public:
  using Error::Error;
};

// Thrown where --help is among the options: the usage is printed to stdout, and the status is 0.
class HelpRequest : public Error {
 public:
  HelpRequest() : Error("--help") {}
};

}  // namespace dtensor::tools
