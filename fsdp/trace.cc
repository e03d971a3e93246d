#include "dtensor/fsdp/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "dtensor/base/context.h"

namespace dtensor::fsdp {
namespace {

double ms(std::chrono::nanoseconds d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

std::vector<TraceEvent> by_begin(const Trace& trace) {
  std::vector<TraceEvent> events = trace.events;
  std::ranges::stable_sort(events, {}, &TraceEvent::begin);
  return events;
}

std::string_view shown(std::string_view group) { return group.empty() ? "(root)" : group; }

}  // namespace

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::kGather:
      return "gather";
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kReduce:
      break;
  }
  return "reduce";
}

bool is_tracing() { return Context::current().slot<Trace>().recording; }

void trace(TraceEvent event) {
  auto& trace = Context::current().slot<Trace>();
  if (trace.recording) trace.events.push_back(std::move(event));
}

std::string to_text(const Trace& trace) {
  std::string text;
  const std::vector<TraceEvent> events = by_begin(trace);
  for (const TraceEvent& e : events) {
    fmt::format_to(std::back_inserter(text), "{:9.3f} ms {:9.3f} ms  {:8}  {}",
                   ms(e.begin - events.front().begin), ms(e.end - e.begin), name_of(e.phase),
                   shown(e.group));
    if (e.bytes > 0) fmt::format_to(std::back_inserter(text), "  {} bytes", e.bytes);
    text += '\n';
  }
  return text;
}

std::string to_perfetto(const Trace& trace, int rank) {
  using Json = nlohmann::ordered_json;
  Json events = Json::array();
  events.push_back({{"name", "process_name"},
                    {"ph", "M"},
                    {"pid", rank},
                    {"args", {{"name", "rank " + std::to_string(rank)}}}});
  for (const Phase phase : {Phase::kGather, Phase::kForward, Phase::kBackward, Phase::kReduce}) {
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", rank},
                      {"tid", static_cast<int>(phase)},
                      {"args", {{"name", name_of(phase)}}}});
  }
  for (const TraceEvent& e : by_begin(trace)) {
    events.push_back({{"name", shown(e.group)},
                      {"cat", name_of(e.phase)},
                      {"ph", "X"},
                      {"pid", rank},
                      {"tid", static_cast<int>(e.phase)},
                      {"ts", ms(e.begin.time_since_epoch()) * 1e3},
                      {"dur", ms(e.end - e.begin) * 1e3},
                      {"args", {{"bytes", e.bytes}}}});
  }
  return Json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ns"}}.dump(1);
}

}  // namespace dtensor::fsdp
