// The ledger for other programs: as JSON, and as a trace that Perfetto and chrome://tracing show.

#pragma once

#include <string>

#include "dtensor/tensor/ledger.h"

namespace dtensor {

// {"payload_bytes":…,"wire_bytes":…,"dropped":…,"sums":[{"op":…,"of":…,"file":…,"line":…,
//  "cause":…,"kind":…,"mesh_dims":…,"entries":…,"calls":…,"payload_bytes":…,"wire_bytes":…}],
//  "entries":[{"call":…,"calls":…,"kind":…,"mesh_dims":["dp"],"op":…,"of":…,"from":LAYOUT,
//  "to":LAYOUT,"shape":[…],"dtype":"f32","wire_dtype":"bf16","payload_bytes":…,"wire_bytes":…,"cause":…,
//  "file":…,"line":…,"label":…,"begin_ns":…,"end_ns":…}]}
// Times are nanoseconds of this machine's monotonic clock, alike for all processes of a machine.
// Everything but them is the same on every run.
std::string to_json(const Ledger& ledger);

// Chrome's Trace Event Format (Google, "Trace Event Format", sections "JSON Object Format" and
// "Complete Events"): one event per Comm call, or for the
// two of a list (args "calls"), from issue until its results were taken. `rank`
// becomes the process of the trace; calls under way at one time stand on lanes of their own. The
// events of several ranks may be put into one list.
std::string to_trace(const Ledger& ledger, int rank);

}  // namespace dtensor
