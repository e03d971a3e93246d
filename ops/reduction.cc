#include "dtensor/ops/reduction.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "dtensor/ops/dispatch.h"

namespace dtensor::ops {

Rule Reduction::rule(std::string_view op) const {
  return Rule{.op = std::string(op), .letters = all + "->" + out, .made = made};
}

Rule Reduction::gradient(std::string op, std::vector<std::string_view> more_names) const {
  Rule rule{.op = std::move(op), .letters = out + "," + all, .linear = {{0}}, .names = {"g", "x"}};
  for (size_t i = 0; i < more_names.size(); ++i) rule.letters += "," + out;
  rule.letters += "->" + all;
  rule.names.append(more_names.begin(), more_names.end());
  for (const MadeLetter& m : made) rule.uncut += m.letter;
  return rule;
}

Reduction reduction_of(std::string_view op, const DTensor& a, const Dims& dims, KeepDims keep) {
  check_same_dtype(op, {a});
  Reduction r;
  for (const int d : dims.span()) r.dims.push_back(normalize_dim(d, a.ndim(), op.data()));
  if (r.dims.empty()) {
    for (int d = 0; d < a.ndim(); ++d) r.dims.push_back(d);
  }
  std::ranges::sort(r.dims);
  if (std::ranges::adjacent_find(r.dims) != r.dims.end()) {
    throw ArgumentError(std::string(op) + ": a dim is given twice");
  }
  r.all = letters_of(a.ndim());
  for (int d = 0; d < a.ndim(); ++d) {
    const char letter = r.all[static_cast<size_t>(d)];
    if (!std::ranges::binary_search(r.dims, d)) {
      r.kept += letter;
      r.out += letter;
      continue;
    }
    r.reduced += letter;
    r.count *= a.size(d);
    if (keep == KeepDims::kNo) continue;
    r.out += static_cast<char>(std::toupper(letter));
    r.made.push_back({r.out.back(), 1});
  }
  return r;
}

Tensor with_ones(const Tensor& y, const Reduction& r, const Shape& shape) {
  Shape ones = shape;
  for (const int d : r.dims) ones[d] = 1;
  return y.reshape(ones);
}

Tensor expand_back(const Tensor& y, const Reduction& r, const Shape& shape) {
  return with_ones(y, r, shape).expand(shape);
}

Tensor finished(const Tensor& y, const Reduction& r, const Shape& shape) {
  return r.made.empty() ? y : with_ones(y, r, shape);
}

}  // namespace dtensor::ops
