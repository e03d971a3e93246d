#include "dtensor/ops/irregular.h"

#include <algorithm>

#include "dtensor/ops/dispatch.h"
#include "dtensor/placement/apply_rule.h"
#include "dtensor/tensor/policy.h"

namespace dtensor::ops {

DTensor move_or_refuse(const Rule& rule, const DTensor& a, const RuleMismatch& mismatch,
                       std::span<const Fix> fixes, CallSite site) {
  if (Context::current().slot<CurrentPolicy>().policy == RedistributePolicy::kAuto) {
    const auto fix = std::ranges::find(fixes, 0, &Fix::new_cuts);
    if (fix != fixes.end()) {
      return move_for_op(a, fix->in.front(), MoveReason::kAutomatic, rule.op, site);
    }
  }
  const DType dtype = a.dtype();
  throw PlacementError(
      no_row_text(rule, {&a.layout(), 1}, mismatch, fixes, {.dtypes = {&dtype, 1}}));
}

}  // namespace dtensor::ops
