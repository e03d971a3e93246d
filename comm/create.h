// Making a Comm: by URL, or from a launcher's environment. Backends register explicitly, so that
// a program links only those that it names.

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "dtensor/comm/comm.h"
#include "dtensor/comm/store.h"

namespace dtensor::comm {

// A parsed URL: gloo://127.0.0.1:29500?rank=0&size=4&generation=2&timeout=60
struct Endpoint {
  std::string scheme;
  std::string host;
  int port = 0;
  int rank = 0;
  int size = 1;
  int64_t generation = 0;
  std::map<std::string, std::string> options;  // the rest: store=file:PATH, interface=…, liveness=…
  Deadline deadline = {};
};

// ArgumentError for a URL that cannot be read.
Endpoint parse_url(std::string_view url);

using Factory = std::function<std::unique_ptr<Comm>(const Endpoint&)>;

// Makes `scheme` known to create(). Thread-safe; registering a scheme twice keeps the later.
void register_backend(std::string_view scheme, Factory factory);

// The Comm at a URL. All ranks of the world call it. Throws ArgumentError (unknown scheme: the
// message lists the known ones) or CommError (a rank that did not come by the deadline is named).
std::unique_ptr<Comm> create(std::string_view url);

// What a launcher's variables say. `get` reads a variable (nullptr where not set); for tests.
struct Environment {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int64_t generation = 0;
  std::string store;      // "host:port" or "file:PATH"; empty for a world of one
  std::string comm;       // DTENSOR_COMM: a scheme or a URL; empty where not set
  bool launched = false;  // some launcher's variables were there
};
// DTENSOR_RANK/DTENSOR_WORLD_SIZE (dtensor run), RANK/WORLD_SIZE (torchrun), SLURM_PROCID with
// SLURM_STEP_NUM_TASKS, OMPI_COMM_WORLD_RANK/SIZE, PMI_RANK/PMI_SIZE, in this order. Partial or
// contradictory variables: ArgumentError naming them.
Environment read_environment(const std::function<const char*(const char*)>& get);

// create() from this process's environment; a world of one on `local` where no launcher was.
std::unique_ptr<Comm> from_environment();

}  // namespace dtensor::comm
