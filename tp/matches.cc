#include "dtensor/tp/matches.h"

#include <algorithm>

#include "dtensor/base/error.h"

namespace dtensor::tp {
namespace {

[[noreturn]] void bad_braces(std::string_view pattern) {
  throw ArgumentError("pattern \"" + std::string(pattern) +
                      "\": braces do not pair up or stand inside each other; write {a,b}");
}

// `*` takes as many characters as are needed, but no dot.
bool matches_plain(std::string_view pattern, std::string_view name) {
  while (!pattern.empty() && pattern.front() != '*') {
    if (name.empty() || name.front() != pattern.front()) return false;
    pattern.remove_prefix(1);
    name.remove_prefix(1);
  }
  if (pattern.empty()) return name.empty();
  pattern.remove_prefix(1);
  for (;;) {
    if (matches_plain(pattern, name)) return true;
    if (name.empty() || name.front() == '.') return false;
    name.remove_prefix(1);
  }
}

}  // namespace

std::vector<std::string> expand_braces(std::string_view pattern) {
  const size_t open = pattern.find('{');
  const size_t close = pattern.find('}');
  if (open == std::string_view::npos && close == std::string_view::npos) {
    return {std::string(pattern)};
  }
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) {
    bad_braces(pattern);
  }
  const std::string_view inside = pattern.substr(open + 1, close - open - 1);
  if (inside.find('{') != std::string_view::npos) bad_braces(pattern);
  std::vector<std::string> out;
  const std::vector<std::string> tails = expand_braces(pattern.substr(close + 1));
  for (size_t begin = 0; begin <= inside.size();) {
    const size_t comma = std::min(inside.find(',', begin), inside.size());
    for (const std::string& tail : tails) {
      std::string one(pattern.substr(0, open));
      one += inside.substr(begin, comma - begin);
      out.push_back(one + tail);
    }
    begin = comma + 1;
  }
  return out;
}

bool matches(std::string_view pattern, std::string_view name) {
  return std::ranges::any_of(expand_braces(pattern),
                             [&](const std::string& one) { return matches_plain(one, name); });
}

}  // namespace dtensor::tp
