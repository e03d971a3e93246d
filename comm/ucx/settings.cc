#include "dtensor/comm/ucx/settings.h"

#include <signal.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>
#include <ucs/debug/log_def.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <string>

#include "dtensor/base/logging.h"

namespace dtensor::comm::ucx {
namespace {

// What UCX says of a peer that died is no news here: the Comm says it with the culprit's name.
ucs_log_func_rc_t to_our_log(const char*, unsigned, const char*, ucs_log_level_t level,
                             const ucs_log_component_config_t*, const char* format, va_list args) {
  std::array<char, 512> text = {};
  std::vsnprintf(text.data(), text.size(), format, args);
  log(level == UCS_LOG_LEVEL_FATAL ? LogLevel::kError : LogLevel::kDebug,
      "ucx: " + std::string(text.data()));
  return UCS_LOG_FUNC_RC_STOP;
}

// UCX's handlers hold some of these; of a signal that it does not hold it only writes to the log.
void give_signals_back() {
  for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) ucs_debug_disable_signal(signal);
}

void settle_once() {
  ucs_log_push_handler(to_our_log);
  give_signals_back();
  ucs_global_opts_set_value("HANDLE_ERRORS", "none");
  ucs_global_opts_set_value("MEMTYPE_CACHE", "n");
}

// UCX takes the signals when it is loaded. They are given back before main, so that no handler
// which main installs is taken for UCX's.
[[maybe_unused]] const bool settled_before_main = [] {
  settle_process();
  return true;
}();

}  // namespace

void settle_process() {
  static std::once_flag once;
  std::call_once(once, settle_once);
}

}  // namespace dtensor::comm::ucx
