// RedistributePolicy: what happens when an op's inputs match no row of its rule.

#pragma once

#include "dtensor/base/context.h"

namespace dtensor {

enum class RedistributePolicy {
  kError,  // PlacementError that shows the two cheapest moves as code
  kAuto,   // the cheapest move is made, entered in the ledger as automatic; no new cuts
};

// The Context's slot, and a scope that sets it:
//   PolicyScope scope(RedistributePolicy::kAuto);
struct CurrentPolicy {
  RedistributePolicy policy = RedistributePolicy::kError;
};
class PolicyScope {
 public:
  explicit PolicyScope(RedistributePolicy policy) : scope_(CurrentPolicy{policy}) {}

 private:
  ScopedSlot<CurrentPolicy> scope_;
};

}  // namespace dtensor
