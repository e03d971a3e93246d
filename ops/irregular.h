// What ops of one input do whose layouts are found by a function of shapes and levels, where that
// function finds none.

#pragma once

#include <span>
#include <string>

#include "dtensor/placement/rule_fix.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor::ops {

// `a` moved to the cheapest fix, or PlacementError that shows it, by the policy. `rule` is for the
// message: its op, and its letters where it has some.
DTensor move_or_refuse(const Rule& rule, const DTensor& a, const RuleMismatch& mismatch,
                       std::span<const Fix> fixes, CallSite site);

}  // namespace dtensor::ops
