// Scopes over what a DTensor program sends. They nest, and hold for everything that this rank asks
// for while they are open, forward and in a backward pass that runs then.
//
//   const NoCommunication silent;   // any collective inside is an error before anything is sent
//   const CommunicationCount count; // collectives run, are counted and get no ledger entry
//
// An inner scope never loosens an outer one. Every rank opens the same scopes around the same
// calls. What a Comm is told directly, below this package, is not seen here.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "dtensor/base/call_site.h"
#include "dtensor/base/context.h"

namespace dtensor {

struct CommunicationTotals {
  int64_t moves = 0;  // tensors and steps of their plans: what a ledger has an entry for
  int64_t payload_bytes = 0;
  int64_t wire_bytes = 0;
};

namespace internal {

// An open scope, and those around it.
struct CommunicationScope {
  bool forbids = false;
  CallSite site;
  CommunicationTotals totals;
  std::shared_ptr<CommunicationScope> outer;
};

// The Context's slot.
struct CurrentCommunication {
  std::shared_ptr<CommunicationScope> scope;
};

// PlacementError where an open scope forbids what `op` at `site` is about to send; `what` says what
// that is: "an all_gather of 24 bytes on x".
void check_may_communicate(std::string_view op, CallSite site, std::string_view what);
// Adds to the totals of `scope` and of those around it. Is there one, so that no entry is wanted?
bool count_communication(CommunicationScope* scope, int64_t payload_bytes, int64_t wire_bytes);

}  // namespace internal

// Inside, a collective throws PlacementError that names the op and its call site, on every rank and
// before anything is sent. Free moves are as ever.
class NoCommunication {
 public:
  explicit NoCommunication(CallSite site = CallSite::here());

 private:
  ScopedSlot<internal::CurrentCommunication> scope_;
};

// Inside, collectives run and are counted here; the ledger's totals go on, its entries do not.
class CommunicationCount {
 public:
  explicit CommunicationCount(CallSite site = CallSite::here());
  const CommunicationTotals& totals() const { return counted_->totals; }

 private:
  std::shared_ptr<internal::CommunicationScope> counted_;
  ScopedSlot<internal::CurrentCommunication> scope_;
};

}  // namespace dtensor
