// Ledger: the record of every collective that a DTensor program ran. One entry per tensor and
// step of its plan; entries that moved in one Comm call share `call`. Slot of the Context.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/base/call_site.h"
#include "dtensor/placement/layout.h"
#include "dtensor/placement/reshard_step.h"

namespace dtensor {

enum class Cause : uint8_t {
  kExplicit,   // the program asked for it: redistribute, item, full, a style, a communicating row
  kAutomatic,  // the policy kAuto
  kAdjoint,    // backward of a redistribute, or a Partial gradient resolved
};

std::string_view name_of(Cause cause);  // "explicit"

struct LedgerEntry {
  StepKind kind = StepKind::kLocal;
  std::vector<int> mesh_dims;
  std::string op;  // who asked: "redistribute", "cross_entropy", "leaf", "fsdp"
  Layout from;
  Layout to;
  // Over all ranks; an all-reduce of S bytes on n ranks counts 2(n-1)S per group.
  int64_t payload_bytes = 0;
  Cause cause = Cause::kExplicit;
  std::string of;  // of an adjoint: the op it is the adjoint of, or that wanted the gradient
  CallSite site;
  int64_t call = 0;   // the Comm call that it moved in
  std::string label;  // a parameter's name, where known
};

// Entries are kept only while `recording`, and of a long run the newest (kMostEntries, or half as
// many); the totals always.
class Ledger {
 public:
  static constexpr size_t kMostEntries = size_t{1} << 16;

  void enter(LedgerEntry entry);
  const std::vector<LedgerEntry>& entries() const { return entries_; }
  int64_t payload_bytes() const { return payload_bytes_; }
  int64_t dropped() const { return dropped_; }  // entries that are no longer kept
  void clear();
  // The number of the next Comm call: what entries that move in it share.
  int64_t next_call() { return ++calls_; }
  bool recording = true;

 private:
  std::vector<LedgerEntry> entries_;
  int64_t payload_bytes_ = 0;
  int64_t dropped_ = 0;
  int64_t calls_ = 0;
};

// A table for people: kind, mesh dims, op, cause, count, bytes, summed over equal lines.
std::string to_string(const Ledger& ledger);

}  // namespace dtensor
