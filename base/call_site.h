// CallSite: where in the user's program a call stands. Taken as a defaulted last argument:
//   DTensor redistribute(..., CallSite site = CallSite::here());

#pragma once

#include "dtensor/base/language.h"

namespace dtensor {

struct CallSite {
  const char* file = "";
  int line = 0;

  static constexpr CallSite here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return CallSite{file, line};
  }
};

}  // namespace dtensor
