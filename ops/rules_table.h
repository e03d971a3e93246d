// The rules of all ops as a table in Markdown: what `dtensor rules --markdown` prints and
// docs/ops.md holds.

#pragma once

#include <string>

namespace dtensor::ops {

// A line per op and rule in letters, in the order of the registry; of an op that is made of others
// a line for each, in the order in which they run. Ops whose layouts are found by a function of
// shapes and levels say so.
std::string rules_table();

}  // namespace dtensor::ops
