// The layout of a slice of a tensor whose dim may be cut: legal where what the ranks hold of it are
// the parts of a cut of the result. Pure.

#pragma once

#include <variant>

#include "dtensor/placement/rule_fix.h"

namespace dtensor::ops {

// Elements begin, begin + step, ... of a dim, `length` of them.
struct Slice {
  int dim = 0;
  int64_t begin = 0;
  int64_t length = 0;
  int64_t step = 1;
};

// "ab->aB": `b` may not be cut, as a rule without that function has it; for messages and fixes.
Rule slice_rule(std::string_view op, const Shape& shape, const Slice& slice);

// The range of the result's indices whose elements lie in `held`.
Range taken_of(const Slice& slice, Range held);

std::variant<Layout, RuleMismatch> slice_layout(const Layout& from, const Slice& slice);

}  // namespace dtensor::ops
