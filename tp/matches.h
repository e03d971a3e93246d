// Patterns for module and parameter names: * stands for any part of one name (it does not cross a
// dot), {a,b} for alternatives.

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dtensor::tp {

// "layers.*.{q,k}_proj" matches "layers.3.q_proj". ArgumentError where braces do not pair up or
// stand inside each other.
bool matches(std::string_view pattern, std::string_view name);

// The pattern with its braces written out: one pattern per alternative.
std::vector<std::string> expand_braces(std::string_view pattern);

}  // namespace dtensor::tp
