// error_of: what an error says, for tests of messages.

#pragma once

#include <string>

#include "dtensor/base/error.h"

namespace dtensor::testing {

// The message of the E that `f` throws, empty where it throws nothing. Anything else that it
// throws goes on to the caller.
template <class E = Error, class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "";
}

}  // namespace dtensor::testing
