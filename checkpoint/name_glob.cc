#include "dtensor/checkpoint/name_glob.h"

#include <algorithm>

namespace dtensor::checkpoint {

bool matches_glob(std::string_view pattern, std::string_view name) {
  // reached[i]: the pattern so far matches the first i characters. No recursion: a pattern of many
  // stars costs no more than its length times the name's.
  std::vector<bool> reached(name.size() + 1, false);
  reached[0] = true;
  for (size_t p = 0; p < pattern.size(); ++p) {
    if (pattern[p] != '*') {
      for (size_t i = name.size(); i > 0; --i)
        reached[i] = reached[i - 1] && name[i - 1] == pattern[p];
      reached[0] = false;
      continue;
    }
    const bool crosses = p + 1 < pattern.size() && pattern[p + 1] == '*';
    if (crosses) ++p;
    for (size_t i = 1; i <= name.size(); ++i) {
      if (reached[i - 1] && (crosses || name[i - 1] != '.')) reached[i] = true;
    }
  }
  return reached[name.size()];
}

bool matches_any(const std::vector<std::string>& patterns, std::string_view name) {
  return std::ranges::any_of(patterns, [&](const std::string& p) { return matches_glob(p, name); });
}

}  // namespace dtensor::checkpoint
