// A plan told in text: what each rank holds before and after, and each step with its groups, who
// sends what to whom, the bytes, and why it is there.

#pragma once

#include <cstdint>
#include <string>

#include "dtensor/base/dtype.h"
#include "dtensor/placement/plan_cost.h"
#include "dtensor/placement/reshard_plan.h"

namespace dtensor::tools {

// Of large meshes and long steps the first ranks and messages are shown. `model` tells the times.
std::string explain(const ReshardPlan& plan, DType dtype, const CostModel& model = {});

// "least possible 16 B", or that it is not counted (ReshardPlan::countable_minimum()).
std::string least_text(const ReshardPlan& plan, int64_t element_bytes);

}  // namespace dtensor::tools
