#include "dtensor/tensor/ledger.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace dtensor {
namespace {

std::string dims_text(const LedgerEntry& e) {
  if (!(e.from.mesh() == e.to.mesh())) return "two meshes";
  std::string dims;
  for (const int m : e.mesh_dims) dims += (dims.empty() ? "" : ",") + e.from.mesh().name(m);
  return dims;
}

}  // namespace

std::string_view name_of(Cause cause) {
  switch (cause) {
    case Cause::kExplicit:
      return "explicit";
    case Cause::kAutomatic:
      return "automatic";
    case Cause::kAdjoint:
      break;
  }
  return "adjoint";
}

void Ledger::count(int64_t payload_bytes, int64_t wire_bytes) {
  payload_bytes_ += payload_bytes;
  wire_bytes_ += wire_bytes;
}

void Ledger::enter(LedgerEntry entry) {
  count(entry.payload_bytes, entry.wire_bytes);
  if (!recording) return;
  if (entries_.size() == kMostEntries) {
    constexpr auto kOldest = static_cast<std::ptrdiff_t>(kMostEntries / 2);
    entries_.erase(entries_.begin(), entries_.begin() + kOldest);
    dropped_ += kOldest;
  }
  entries_.push_back(std::move(entry));
}

void Ledger::end_call(int64_t call, LedgerEntry::Time end) {
  auto it = std::lower_bound(entries_.begin(), entries_.end(), call,
                             [](const LedgerEntry& e, int64_t c) { return e.call < c; });
  for (; it != entries_.end() && it->call == call; ++it) it->end = end;
}

void Ledger::clear() {
  entries_.clear();
  payload_bytes_ = 0;
  wire_bytes_ = 0;
  dropped_ = 0;
}

std::vector<LedgerSum> sums(const Ledger& ledger) {
  using Key = std::tuple<std::string, std::string, std::string, int, Cause, StepKind, std::string>;
  struct Line {
    LedgerSum sum;
    int64_t last_call = -1;
  };
  std::map<Key, Line> lines;
  for (const LedgerEntry& e : ledger.entries()) {
    const std::string dims = dims_text(e);
    Line& line = lines[{e.op, e.of, e.site.file, e.site.line, e.cause, e.kind, dims}];
    LedgerSum& sum = line.sum;
    if (sum.entries == 0) {
      sum = {.op = e.op,
             .of = e.of,
             .site = e.site,
             .cause = e.cause,
             .kind = e.kind,
             .mesh_dims = dims};
    }
    ++sum.entries;
    sum.calls += e.call != line.last_call ? e.calls : 0;
    line.last_call = e.call;
    sum.payload_bytes += e.payload_bytes;
    sum.wire_bytes += e.wire_bytes;
  }
  std::vector<LedgerSum> all;
  for (auto& [key, line] : lines) all.push_back(std::move(line.sum));
  return all;
}

std::string to_string(const Ledger& ledger) {
  constexpr const char* kLine = "{:<28} {:<24} {:<10} {:<15} {:<10} {:>6} {:>14} {:>14}\n";
  std::string text = fmt::format(kLine, "op", "call site", "cause", "kind", "mesh dims", "count",
                                 "payload bytes", "wire bytes");
  for (const LedgerSum& s : sums(ledger)) {
    text += fmt::format(kLine, s.of.empty() ? s.op : s.op + " of " + s.of, to_string(s.site),
                        name_of(s.cause), name_of(s.kind), s.mesh_dims, s.entries, s.payload_bytes,
                        s.wire_bytes);
  }
  text += fmt::format(kLine, "all", "", "", "", "", ledger.entries().size(), ledger.payload_bytes(),
                      ledger.wire_bytes());
  return text;
}

std::string to_string(CallSite site) {
  if (site.line == 0) return {};
  const std::string_view file = site.file;
  const size_t slash = file.rfind('/');
  return std::string(slash == std::string_view::npos ? file : file.substr(slash + 1)) + ":" +
         std::to_string(site.line);
}

}  // namespace dtensor
