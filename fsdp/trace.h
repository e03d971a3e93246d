// Trace: what the groups of a Context did and when: who was gathered, computed and reduced. Off
// until it is asked for:
//
//   Context::current().slot<fsdp::Trace>().recording = true;
//   ... steps ...
//   std::ofstream("step.json") << to_perfetto(Context::current().slot<fsdp::Trace>(), rank);

#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtensor::fsdp {

enum class Phase : uint8_t {
  kGather,    // from issue until its result was taken
  kForward,   // of the module, without those of other groups told apart
  kBackward,  // from the gradient of the module's output to those of its parameters
  kReduce,    // from issue until the parameters have their gradients
};
std::string_view name_of(Phase phase);  // "gather"

struct TraceEvent {
  using Time = std::chrono::steady_clock::time_point;
  Phase phase = Phase::kGather;
  std::string group;  // name of the module; the topmost is ""
  Time begin;
  Time end;
  int64_t bytes = 0;  // of gathered parameters, or of gradients; of what computes 0
};

// The Context's slot.
struct Trace {
  bool recording = false;
  std::vector<TraceEvent> events;  // in the order of their ends
};

bool is_tracing();
void trace(TraceEvent event);

// A line per event, by begin: "   1.204 ms    0.310 ms  gather    layers.3  1048576 bytes": begin,
// counted from the first, and duration.
std::string to_text(const Trace& trace);
// Trace Event Format (Google, "Trace Event Format", section "Complete Events"), for Perfetto and
// chrome://tracing: a process per rank, a row per phase.
std::string to_perfetto(const Trace& trace, int rank);

}  // namespace dtensor::fsdp
