// The counters of a Comm as text for Prometheus ("Exposition formats", text format 0.0.4).

#pragma once

#include <string>

#include "dtensor/comm/recorder.h"
#include "dtensor/comm/types.h"

namespace dtensor::comm {

// `comm` and `rank` are labels of every line. Operations without a call are left out.
std::string metrics_text(const std::string& comm, int rank, const Totals& totals,
                         const Counters& counters);

}  // namespace dtensor::comm
