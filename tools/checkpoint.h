// dtensor checkpoint: looks at, checks, converts and compares checkpoints on disk. Needs no other
// rank and no model, and takes memory for a buffer and the metadata.

#pragma once

#include <ostream>
#include <span>
#include <string>

namespace dtensor::tools {

// `args` follow "checkpoint". Returns the exit status: 0 what was asked is so, 1 a finding, 2 wrong
// usage, with the reason on `err`.
int checkpoint_command(std::span<const std::string> args, std::ostream& out, std::ostream& err);

}  // namespace dtensor::tools
