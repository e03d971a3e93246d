#include "dtensor/base/logging.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

namespace dtensor {
namespace {

spdlog::logger& logger() {
  static const auto instance = [] {
    auto made = std::make_shared<spdlog::logger>("dtensor",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    const char* wanted = std::getenv("DTENSOR_LOG");  // NOLINT(concurrency-mt-unsafe)
    made->set_level(wanted != nullptr ? spdlog::level::from_str(wanted) : spdlog::level::warn);
    return made;
  }();
  return *instance;
}

}  // namespace

void log(LogLevel level, std::string_view message) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                   spdlog::level::warn, spdlog::level::err};
  logger().log(kLevels[static_cast<int>(level)], message);
}

}  // namespace dtensor
