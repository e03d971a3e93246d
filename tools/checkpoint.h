// dtensor checkpoint ls, verify: what a checkpoint holds, and whether it is whole. Needs no other
// rank.

#pragma once

#include <ostream>
#include <span>
#include <string>

namespace dtensor::tools {

// `args` follow "checkpoint". Returns the exit status: 0 what was asked is so, 1 a finding, 2 wrong
// usage, with the reason on `err`.
int checkpoint_command(std::span<const std::string> args, std::ostream& out, std::ostream& err);

}  // namespace dtensor::tools
