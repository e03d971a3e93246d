#include "dtensor/ops/slice_layout.h"

#include <algorithm>
#include <string>
#include <vector>

namespace dtensor::ops {
namespace {

using Levels = std::vector<Level>;

Layout with_levels(const Layout& from, int dim, int64_t size, const Levels& levels) {
  std::vector<Levels> all;
  for (int d = 0; d < from.ndim(); ++d) {
    const auto own = from.spec().levels(d);
    all.push_back(d == dim ? levels : Levels(own.begin(), own.end()));
  }
  std::vector<Placement> partial;
  for (const Placement p : from.spec().placements()) {
    partial.push_back(p.is_partial() ? p : Replicate());
  }
  Shape shape = from.shape();
  shape[dim] = size;
  return Layout(Spec::from_levels(from.mesh(), all, partial), shape);
}

// The units that a cut of the result may have: those of the operand, the same in steps, 1, or what
// the first coordinate holds.
std::vector<Levels> candidates(const Layout& from, const Slice& slice) {
  const auto own = from.spec().levels(slice.dim);
  Levels same(own.begin(), own.end());
  Levels stepped = same;
  Levels single = same;
  Levels first = same;
  for (size_t k = 0; k < same.size(); ++k) {
    if (same[k].unit % slice.step == 0) stepped[k].unit = same[k].unit / slice.step;
    single[k].unit = 1;
    const Levels outer(same.begin(), same.begin() + static_cast<std::ptrdiff_t>(k) + 1);
    const Layout cut = with_levels(from, slice.dim, from.shape()[slice.dim], outer);
    const Range held = cut.range(slice.dim, Coordinate{});
    first[k].unit = std::max<int64_t>(1, taken_of(slice, held).size());
  }
  return {same, stepped, single, first};
}

bool holds_what_is_there(const Layout& from, const Slice& slice, const Layout& out) {
  for (int r = 0; r < from.mesh().size(); ++r) {
    const Coordinate at = from.mesh().coordinate_at(r);
    const Range there = taken_of(slice, from.range(slice.dim, at));
    const Range cut = out.range(slice.dim, at);
    if (there.size() != cut.size() || (there.size() > 0 && there.begin != cut.begin)) return false;
  }
  return true;
}

}  // namespace

Rule slice_rule(std::string_view op, const Shape& shape, const Slice& slice) {
  std::string from;
  for (int d = 0; d < shape.ndim(); ++d) from += static_cast<char>('a' + d);
  std::string to = from;
  const char letter = from[static_cast<size_t>(slice.dim)];
  const char made = static_cast<char>(letter - 'a' + 'A');
  to[static_cast<size_t>(slice.dim)] = made;
  return Rule{.op = std::string(op),
              .letters = from + "->" + to,
              .uncut = std::string(1, letter),
              .made = {{made, slice.length}},
              .linear = {{0}}};
}

Range taken_of(const Slice& slice, Range held) {
  const auto index = [&](int64_t element) {
    const int64_t past = std::max<int64_t>(0, element - slice.begin);
    return std::clamp<int64_t>((past + slice.step - 1) / slice.step, 0, slice.length);
  };
  return {index(held.begin), index(held.end)};
}

std::variant<Layout, RuleMismatch> slice_layout(const Layout& from, const Slice& slice) {
  const auto levels = from.spec().levels(slice.dim);
  if (levels.empty()) return with_levels(from, slice.dim, slice.length, {});
  for (const Levels& units : candidates(from, slice)) {
    const Layout out = with_levels(from, slice.dim, slice.length, units);
    if (holds_what_is_there(from, slice, out)) return out;
  }
  return RuleMismatch{levels.front().mesh_dim,
                      "dim " + std::to_string(slice.dim) +
                          " is cut, and what ranks hold of the slice are no parts of a cut"};
}

}  // namespace dtensor::ops
