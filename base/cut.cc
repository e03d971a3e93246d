#include "dtensor/base/cut.h"

#include <algorithm>
#include <string>

namespace dtensor {
namespace {

using Wide = __int128;  // units * weights may exceed 64 bits

int64_t boundary(Range whole, int64_t unit, Wide before, Wide all) {
  const Wide length = Wide{whole.end} - whole.begin;
  // Divisions of 64 bits are several times as fast, and nearly all cuts are of this size.
  constexpr int64_t kNarrow = int64_t{1} << 31;
  if (length < kNarrow && unit < kNarrow && all < kNarrow) {
    const auto n = static_cast<int64_t>(length);
    const auto w = static_cast<int64_t>(all);
    const int64_t units = (n + unit - 1) / unit;
    return whole.begin + std::min(n, unit * ((units * static_cast<int64_t>(before) + w - 1) / w));
  }
  const Wide units = (length + unit - 1) / unit;
  const Wide at = Wide{whole.begin} + unit * ((units * before + all - 1) / all);
  return static_cast<int64_t>(std::min<Wide>(whole.end, at));
}

}  // namespace

Range cut(Range whole, int index, int parts, int64_t unit, std::span<const int64_t> weights) {
  if (parts < 1 || index < 0 || index >= parts || unit < 1 || whole.end < whole.begin) {
    throw ArgumentError("cut: part " + std::to_string(index) + " of " + std::to_string(parts) +
                        " with unit " + std::to_string(unit) +
                        "; parts and unit are 1 or more, the index is below parts");
  }
  if (weights.empty())
    return {boundary(whole, unit, index, parts), boundary(whole, unit, index + 1, parts)};
  if (weights.size() != static_cast<size_t>(parts)) {
    throw ArgumentError("cut: " + std::to_string(weights.size()) + " weights for " +
                        std::to_string(parts) + " parts; give one per part");
  }
  Wide before = 0;
  Wide all = 0;
  for (int i = 0; i < parts; ++i) {
    const int64_t w = weights[static_cast<size_t>(i)];
    if (w < 0) throw ArgumentError("cut: weight " + std::to_string(w) + " is negative");
    if (i < index) before += w;
    all += w;
  }
  if (all > INT64_MAX) throw ArgumentError("cut: the sum of the weights does not fit in 64 bits");
  if (all == 0) throw ArgumentError("cut: all weights are 0; at least one must be positive");
  return {boundary(whole, unit, before, all),
          boundary(whole, unit, before + weights[static_cast<size_t>(index)], all)};
}

}  // namespace dtensor
