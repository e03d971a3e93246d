// Ledger: the record of every collective that a DTensor program ran. One entry per tensor and
// step of its plan, in the order of issue; entries that moved in one Comm call share `call`. Slot
// of the Context. Its bytes are those that the Comms count: payload_bytes_sent, added over all
// ranks, is wire_bytes here.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/base/call_site.h"
#include "dtensor/base/dtype.h"
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
  using Time = std::chrono::steady_clock::time_point;

  StepKind kind = StepKind::kLocal;
  std::vector<int> mesh_dims;  // none of what goes from one mesh to another
  std::string op;              // who asked: "redistribute", "cross_entropy", "leaf", "fsdp"
  Layout from;
  Layout to;
  DType dtype = DType::kFloat32;       // of the tensor
  DType wire_dtype = DType::kFloat32;  // of what is sent
  // Over all ranks; an all-reduce of S bytes on n ranks counts 2(n-1)S per group. The elements
  // sent, at the size of the tensor's dtype; and at that of what is sent (without a transport's
  // headers, which Comm::counters() has).
  int64_t payload_bytes = 0;
  int64_t wire_bytes = 0;
  Cause cause = Cause::kExplicit;
  // Of an adjoint: the op it is the adjoint of, or that wanted the gradient. Of an automatic move:
  // the op that it was made for.
  std::string of;
  CallSite site;
  int64_t call = 0;   // the Comm call that it moved in,
  int calls = 1;      // the first of so many: an all-reduce of a list may be two
  std::string label;  // a parameter's name, where known
  // On this rank: when the call was issued, and when its results were taken. Of a call whose
  // results nobody took, `end` is `begin`.
  Time begin;
  Time end;
};

// Entries are kept only while `recording`, and of a long run the newest (kMostEntries, or half as
// many); the totals always.
class Ledger {
 public:
  static constexpr size_t kMostEntries = size_t{1} << 16;

  void enter(LedgerEntry entry);
  // For what is counted without an entry.
  void count(int64_t payload_bytes, int64_t wire_bytes);
  // The results of a call have been taken.
  void end_call(int64_t call, LedgerEntry::Time end);
  const std::vector<LedgerEntry>& entries() const { return entries_; }
  int64_t payload_bytes() const { return payload_bytes_; }
  int64_t wire_bytes() const { return wire_bytes_; }
  int64_t dropped() const { return dropped_; }  // entries that are no longer kept
  void clear();
  // The number of the next Comm call: what entries that move in it share.
  int64_t next_call() { return ++calls_; }
  bool recording = true;

 private:
  std::vector<LedgerEntry> entries_;  // calls ascend
  int64_t payload_bytes_ = 0;
  int64_t wire_bytes_ = 0;
  int64_t dropped_ = 0;
  int64_t calls_ = 0;
};

// Entries of one op, of one cause and kind, on the same mesh dims, from one place in the program.
struct LedgerSum {
  std::string op;
  std::string of;
  CallSite site;
  Cause cause = Cause::kExplicit;
  StepKind kind = StepKind::kLocal;
  std::string mesh_dims;  // "dp,tp"; "two meshes" of what goes from one to another
  int64_t entries = 0;
  int64_t calls = 0;
  int64_t payload_bytes = 0;
  int64_t wire_bytes = 0;
};
// Sorted by op, of, file, line, cause, kind, mesh dims: the same on every run and rank.
std::vector<LedgerSum> sums(const Ledger& ledger);

// The sums as a table for people.
std::string to_string(const Ledger& ledger);

// "model.cc:42", the file without its folders; empty where unknown.
std::string to_string(CallSite site);

}  // namespace dtensor
