#include "dtensor/tensor/ledger.h"

#include <fmt/core.h>

#include <map>
#include <tuple>
#include <utility>

namespace dtensor {

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

void Ledger::enter(LedgerEntry entry) {
  payload_bytes_ += entry.payload_bytes;
  if (!recording) return;
  if (entries_.size() == kMostEntries) {
    constexpr auto kOldest = static_cast<std::ptrdiff_t>(kMostEntries / 2);
    entries_.erase(entries_.begin(), entries_.begin() + kOldest);
    dropped_ += kOldest;
  }
  entries_.push_back(std::move(entry));
}

void Ledger::clear() {
  entries_.clear();
  payload_bytes_ = 0;
  dropped_ = 0;
}

std::string to_string(const Ledger& ledger) {
  struct Sum {
    int64_t count = 0;
    int64_t bytes = 0;
  };
  // kind, mesh dims, who asked, cause
  std::map<std::tuple<std::string, std::string, std::string, std::string>, Sum> lines;
  for (const LedgerEntry& e : ledger.entries()) {
    std::string dims;
    for (const int m : e.mesh_dims) dims += (dims.empty() ? "" : ",") + e.from.mesh().name(m);
    const std::string who = e.of.empty() ? e.op : e.op + " of " + e.of;
    Sum& sum = lines[{std::string(name_of(e.kind)), dims, who, std::string(name_of(e.cause))}];
    ++sum.count;
    sum.bytes += e.payload_bytes;
  }
  std::string text = fmt::format("{:<15} {:<10} {:<32} {:<10} {:>6} {:>14}\n", "kind", "mesh dims",
                                 "op", "cause", "count", "payload bytes");
  for (const auto& [key, sum] : lines) {
    text += fmt::format("{:<15} {:<10} {:<32} {:<10} {:>6} {:>14}\n", std::get<0>(key),
                        std::get<1>(key), std::get<2>(key), std::get<3>(key), sum.count, sum.bytes);
  }
  text +=
      fmt::format("{:<70} {:>6} {:>14}\n", "all", ledger.entries().size(), ledger.payload_bytes());
  return text;
}

}  // namespace dtensor
