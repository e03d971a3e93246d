// Rules of elementwise ops with broadcasting: dims aligned from the right are equal, or 1, or
// absent. Internal.

#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "dtensor/placement/rule.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor::ops {

// A dim of size 1 that is repeated is a letter of its own, which may not be cut.
Rule broadcast_rule(std::string_view op, std::span<const DTensor> inputs,
                    const InlineVector<Rule::InputSet, 3>& linear = {},
                    const InlineVector<std::string_view, 6>& names = {});

// "ab->ab" of one operand.
Rule pointwise_rule(std::string_view op, const DTensor& a, bool linear);
// "ab,ab->ab" of so many operands of `ndim` dims.
std::string pointwise_letters(int operands, int ndim);

// A number beside a: ArgumentError where a holds integers and the number is none of 64 bits.
void check_number(std::string_view op, const DTensor& a, double number);
// As a scalar of a's dtype, on no mesh; integers wrap.
DTensor scalar_like(std::string_view op, const DTensor& a, double number);

}  // namespace dtensor::ops
