#include "dtensor/tensor/ledger_export.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace dtensor {
namespace {

using Json = nlohmann::ordered_json;

int64_t nanoseconds(LedgerEntry::Time t) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(t.time_since_epoch()).count();
}

double microseconds(int64_t ns) { return static_cast<double>(ns) / 1000.0; }

Json dims_of(const LedgerEntry& e) {
  Json dims = Json::array();
  for (const int m : e.mesh_dims) dims.push_back(e.from.mesh().name(m));
  return dims;
}

Json json_of(const LedgerSum& s) {
  return {{"op", s.op},
          {"of", s.of},
          {"file", s.site.file},
          {"line", s.site.line},
          {"cause", name_of(s.cause)},
          {"kind", name_of(s.kind)},
          {"mesh_dims", s.mesh_dims},
          {"entries", s.entries},
          {"calls", s.calls},
          {"payload_bytes", s.payload_bytes},
          {"wire_bytes", s.wire_bytes}};
}

Json json_of(const LedgerEntry& e) {
  Json shape = Json::array();
  for (const int64_t d : e.from.shape()) shape.push_back(d);
  return {{"call", e.call},
          {"calls", e.calls},
          {"kind", name_of(e.kind)},
          {"mesh_dims", dims_of(e)},
          {"op", e.op},
          {"of", e.of},
          {"from", to_string(e.from)},
          {"to", to_string(e.to)},
          {"shape", std::move(shape)},
          {"dtype", name_of(e.dtype)},
          {"wire_dtype", name_of(e.wire_dtype)},
          {"payload_bytes", e.payload_bytes},
          {"wire_bytes", e.wire_bytes},
          {"cause", name_of(e.cause)},
          {"file", e.site.file},
          {"line", e.site.line},
          {"label", e.label},
          {"begin_ns", nanoseconds(e.begin)},
          {"end_ns", nanoseconds(e.end)}};
}

// Names come from the program and may be no UTF-8.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The first lane that is free at `begin`; taken until `end`.
size_t take_lane(std::vector<int64_t>& free_from, int64_t begin, int64_t end) {
  size_t lane = 0;
  while (lane < free_from.size() && free_from[lane] > begin) ++lane;
  if (lane == free_from.size()) free_from.push_back(0);
  free_from[lane] = end;
  return lane;
}

// One event for the entries [first, last), which moved in one call.
Json event_of(std::span<const LedgerEntry> entries, int rank, std::vector<int64_t>& lanes) {
  const LedgerEntry& e = entries.front();
  const int64_t begin = nanoseconds(e.begin);
  const int64_t end = nanoseconds(e.end);
  int64_t payload = 0;
  int64_t wire = 0;
  Json tensors = Json::array();
  for (const LedgerEntry& one : entries) {
    payload += one.payload_bytes;
    wire += one.wire_bytes;
    tensors.push_back(one.label + (one.label.empty() ? "" : " ") + std::string(name_of(one.dtype)) +
                      to_string(one.from.shape()) + " " + to_string(one.from.spec()) + " -> " +
                      to_string(one.to.spec()));
  }
  return {{"name", std::string(name_of(e.kind)) + " " + e.op},
          {"cat", name_of(e.cause)},
          {"ph", "X"},
          {"ts", microseconds(begin)},
          {"dur", microseconds(end - begin)},
          {"pid", rank},
          {"tid", take_lane(lanes, begin, end)},
          {"args",
           {{"call", e.call},
            {"calls", e.calls},
            {"of", e.of},
            {"site", to_string(e.site)},
            {"mesh_dims", dims_of(e)},
            {"payload_bytes", payload},
            {"wire_bytes", wire},
            {"tensors", std::move(tensors)}}}};
}

}  // namespace

std::string to_json(const Ledger& ledger) {
  Json lines = Json::array();
  for (const LedgerSum& s : sums(ledger)) lines.push_back(json_of(s));
  Json entries = Json::array();
  for (const LedgerEntry& e : ledger.entries()) entries.push_back(json_of(e));
  return text_of({{"payload_bytes", ledger.payload_bytes()},
                  {"wire_bytes", ledger.wire_bytes()},
                  {"dropped", ledger.dropped()},
                  {"sums", std::move(lines)},
                  {"entries", std::move(entries)}});
}

std::string to_trace(const Ledger& ledger, int rank) {
  Json events = Json::array();
  events.push_back({{"name", "process_name"},
                    {"ph", "M"},
                    {"pid", rank},
                    {"args", {{"name", "rank " + std::to_string(rank)}}}});
  const std::span<const LedgerEntry> all = ledger.entries();
  std::vector<int64_t> lanes;
  for (size_t first = 0; first < all.size();) {
    size_t last = first + 1;
    while (last < all.size() && all[last].call == all[first].call) ++last;
    events.push_back(event_of(all.subspan(first, last - first), rank, lanes));
    first = last;
  }
  return text_of({{"traceEvents", std::move(events)}, {"displayTimeUnit", "ns"}});
}

}  // namespace dtensor
