// launch_local: runs a program as the ranks of a world on this machine. Each process gets
// DTENSOR_RANK, DTENSOR_LOCAL_RANK, DTENSOR_WORLD_SIZE, DTENSOR_COMM and DTENSOR_STORE, so that
// comm::from_environment() in it gives the world.
//
// When one process fails, the others have `settle` to find that out and to say what they found;
// then all are ended (SIGTERM, after `grace` SIGKILL). None is left: each is
// killed when the launcher dies, and what it started itself ends with it. SIGINT, SIGTERM and
// SIGHUP to the launcher go on to the ranks. Their stdin is /dev/null.

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dtensor::comm {

enum class LaunchOutput : uint8_t {
  kPrefixed,  // line by line as "[rank] line", stdout to stdout and stderr to stderr
  kPlain,     // the ranks write to the launcher's stdout and stderr themselves
};

struct LaunchOptions {
  std::vector<std::string> argv;  // the program, found by PATH, and its arguments
  int size = 1;
  std::string comm = "gloo";  // a scheme, or a URL without rank and size
  LaunchOutput output = LaunchOutput::kPrefixed;
  std::chrono::milliseconds settle{3000};
  std::chrono::milliseconds grace{5000};
  std::optional<std::chrono::milliseconds> timeout = {};  // of the whole run; then status 124
};

// Returns when every process has ended: 0 where all did well, else the status of the first that
// failed (128 + signal where a signal ended it; 127 where the program could not be started), or 128
// + signal where the launcher was interrupted. Call it from a program's main thread. Throws
// ArgumentError for an empty argv or a size below 1, Error where processes cannot be made.
int launch_local(const LaunchOptions& options);

}  // namespace dtensor::comm
