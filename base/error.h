// Error: what every function of dtensor throws on bad input or a failed operation.
// A message says what was asked, what was found, and the fix; code in it can be pasted.
// CommError (dtensor/comm/comm_error.h) is the one child with fields.

#pragma once

#include <stdexcept>
#include <string>

#include "dtensor/base/language.h"

namespace dtensor {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The caller's mistake; nothing was changed and nothing was sent.
class ArgumentError : public Error {
 public:
  using Error::Error;
};

// No row of an op's rule fits the placements given, or there is no such placement.
class PlacementError : public Error {
 public:
  using Error::Error;
};

// What was read cannot be trusted, or could not be read.
class CheckpointError : public Error {
 public:
  using Error::Error;
};

// An invariant of the library broke: a bug in dtensor.
class InternalError : public Error {
 public:
  using Error::Error;
};

// Throws InternalError(what) unless `holds`. Checked in every build.
inline void internal_check(bool holds, const char* what) {
  if (!holds) throw InternalError(std::string("dtensor internal error: ") + what);
}

}  // namespace dtensor
