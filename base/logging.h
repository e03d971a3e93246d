// Logging, silent by default: only warnings and errors are printed, to stderr, unless DTENSOR_LOG
// is debug, info, warn, error or off.

#pragma once

#include <string_view>

#include "dtensor/base/language.h"

namespace dtensor {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

// Thread-safe.
void log(LogLevel level, std::string_view message);

}  // namespace dtensor
