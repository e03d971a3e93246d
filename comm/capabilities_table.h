// Capabilities as a table in Markdown: what `dtensor comm-bench --capabilities` prints and
// docs/comm.md holds.

#pragma once

#include <string>

#include "dtensor/comm/capabilities.h"

namespace dtensor::comm {

// A line for each group of dtypes that are treated alike, a column for each group of operations:
// the reductions that they take, or whether data is moved ("yes", "staged", "-"). A table for each
// kind of memory that is taken at all. Ends with what sums of 16-bit types are made in, and whether
// their order is fixed.
std::string capabilities_table(const Capabilities& capabilities);

}  // namespace dtensor::comm
