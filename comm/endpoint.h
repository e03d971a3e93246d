// Endpoint: where a Comm is and who this process is in it, as a URL says it:
//   gloo://127.0.0.1:29500?rank=0&size=4&generation=2&timeout=60
//   gloo://?rank=0&size=4&store=file:/tmp/run7&interface=eth0&liveness=30
// host:port is the store, served by rank 0; `store` names another. `timeout` (seconds) bounds the
// rendezvous. Values may use %XX.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "dtensor/base/deadline.h"

namespace dtensor::comm {

struct Endpoint {
  std::string scheme;
  std::string host;
  int port = 0;
  int rank = 0;
  int size = 1;
  int64_t generation = 0;
  std::map<std::string, std::string> options;  // the rest: store, interface, liveness, ...
  Deadline deadline = {};
};

// ArgumentError for a URL that cannot be read, a rank outside the size, or a URL without rank and
// size (`local` alone may leave them out: a world of one is never assumed elsewhere).
Endpoint parse_url(std::string_view url);

// The same for a URL, or a scheme alone, whose rank, size and generation come from a launcher;
// ArgumentError where the URL says them too.
Endpoint parse_url_of_launched(std::string_view url_or_scheme, int rank, int size,
                               int64_t generation);

// The integer `text`, which is the value of `name`; ArgumentError naming both where it is none or
// outside [low, high].
int64_t parse_integer(std::string_view name, std::string_view text, int64_t low, int64_t high);

}  // namespace dtensor::comm
