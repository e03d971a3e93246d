// Making a Comm: by URL, or from a launcher's environment. Backends register explicitly, so that
// a program links only those that it names; comm::register_all() (//comm:backends) names all.

#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "dtensor/comm/comm.h"
#include "dtensor/comm/endpoint.h"
#include "dtensor/comm/environment.h"

namespace dtensor::comm {

using Factory = std::function<std::unique_ptr<Comm>(const Endpoint&)>;

// Makes `scheme` known to create(). Thread-safe; registering a scheme twice keeps the later.
void register_backend(std::string_view scheme, Factory factory);

// Throws the ArgumentError of create() where the scheme, or that of the URL, is not registered, or
// the URL is none.
void check_backend(std::string_view scheme_or_url);

// The Comm at a URL (dtensor/comm/endpoint.h). All ranks of the world call it. Throws ArgumentError
// (unknown scheme: the message lists the known ones) or CommError (a rank that did not come by the
// deadline is named; Mismatch where ranks disagree on size, generation or version).
// It becomes the root Comm of the Context that is bound now (dtensor/comm/root.h). Every backend
// has the option trace=DIR: where traces of failed Comms are written (Comm::set_trace_directory);
// without it DTENSOR_TRACE_DIR.
std::unique_ptr<Comm> create(std::string_view url);
std::unique_ptr<Comm> create(const Endpoint& endpoint);

// create() from this process's environment: DTENSOR_COMM is a scheme or a URL without rank and
// size, `gloo` where it is not set; DTENSOR_INTERFACE or DTENSOR_ADDRESS say where this rank is
// reached, where the URL does not. A world of one on `local` where no launcher was.
std::unique_ptr<Comm> from_environment();
// The same for other variables than the process's.
Endpoint endpoint_of(const Environment& environment);

}  // namespace dtensor::comm
