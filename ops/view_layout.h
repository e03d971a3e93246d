// The layout of a reshape: how cuts and units go from one shape to another of as many elements.
// Pure.

#pragma once

#include <string>
#include <variant>
#include <vector>

#include "dtensor/placement/rule_fix.h"

namespace dtensor::ops {

// `shape` with its -1 replaced. ArgumentError where the numbers of elements differ.
Shape infer_shape(const Shape& from, const Shape& shape);

// The layout of the result, or why there is none.
std::variant<Layout, RuleMismatch> reshape_layout(const Layout& from, const Shape& shape);

// Can a piece with these sizes and strides be viewed so? The same on every rank whose piece lies in
// the same way: a dim counts where it is longer than 1 in `from`, the global shape, also on a rank
// that holds one row of it.
bool can_view(const Shape& from, const Shape& shape, const Shape& local, const Shape& strides);

// Layouts that `from` can be brought to so that the reshape has one; cheapest first.
std::vector<Fix> reshape_fixes(const Layout& from, const Shape& shape, DType dtype);

}  // namespace dtensor::ops
