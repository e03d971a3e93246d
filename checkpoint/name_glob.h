// Patterns for tensor names: * stands for any part of one name (it does not cross a dot), ** for
// anything.

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dtensor::checkpoint {

// "layers.*.weight" matches "layers.3.weight"; "layers.**" matches all of "layers.3.mlp.weight".
bool matches_glob(std::string_view pattern, std::string_view name);
bool matches_any(const std::vector<std::string>& patterns, std::string_view name);

}  // namespace dtensor::checkpoint
