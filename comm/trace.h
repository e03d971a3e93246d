// Trace: what one rank's last calls on one Comm were. A Comm keeps it all the time, in memory taken
// once; it is written when the Comm fails, or read by Comm::trace(). `dtensor comm-trace` puts the
// traces of all ranks beside each other and says who waits for whom.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/comm/call.h"
#include "dtensor/comm/types.h"

namespace dtensor::comm {

enum class CallState : uint8_t { kQueued, kRunning, kDone, kFailed };
std::string_view name_of(CallState state);  // "running"

// One call. Times are nanoseconds of the system's clock since 1970; 0: not yet.
struct CallRecord {
  int64_t sequence = 0;
  CallState state = CallState::kQueued;
  CallKey key;
  int64_t bytes = 0;  // of this rank's buffers
  int64_t issued = 0;
  int64_t started = 0;
  int64_t completed = 0;
  uint64_t hash = 0;                // of what all ranks must have alike; filled in a Trace
  std::array<char, 40> label = {};  // its beginning

  std::string_view label_text() const;
};

struct Trace {
  std::string run_id = {};
  int64_t generation = 0;
  std::string comm = {};  // "world/tp": the names of the Comms that it was made from, and its own
  std::vector<int> ranks = {};  // its members, as ranks of the world
  int rank = 0;                 // this one, of the Comm
  int64_t taken = 0;            // when, as in CallRecord
  std::string error = {};       // why the Comm ended; empty where it lives
  // The last 1,024, and those before that are still under way; in order of sequence.
  std::vector<CallRecord> calls = {};
};

std::string to_json(const Trace& trace);
// Error for a text that is no trace.
Trace trace_of_json(std::string_view text);

// Writes it to a file of its own in `directory`, which is made where it is not there: whole or not
// at all. Returns its path; Error where it cannot be written.
std::string write_trace(const Trace& trace, const std::string& directory);

}  // namespace dtensor::comm
