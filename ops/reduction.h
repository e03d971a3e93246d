// What reductions share: the letters of their rules, and the way back. Internal.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dtensor/ops/dims.h"
#include "dtensor/placement/rule.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor::ops {

struct Reduction {
  std::vector<int> dims;  // sorted; empty for a scalar only
  std::string all;        // letters of the operand
  std::string kept;       // without the reduced ones
  std::string reduced;
  std::string out;  // of the result: reduced dims that stay are capital letters
  std::vector<MadeLetter> made = {};
  int64_t count = 1;  // global elements per result

  // "abc->aB", to be completed.
  Rule rule(std::string_view op) const;
  // "aB,abc->abc", linear in g: the gradient from g and x.
  Rule gradient(std::string op, std::vector<std::string_view> more_names = {}) const;
};

// ArgumentError for a dim that is not there or given twice.
Reduction reduction_of(std::string_view op, const DTensor& a, const Dims& dims, KeepDims keep);

// `y` [kept] with the reduced dims of `shape` as 1.
Tensor with_ones(const Tensor& y, const Reduction& r, const Shape& shape);
// The same repeated to `shape` without a copy.
Tensor expand_back(const Tensor& y, const Reduction& r, const Shape& shape);
// The result of a kernel that gave [kept], from an operand of `shape`.
Tensor finished(const Tensor& y, const Reduction& r, const Shape& shape);

}  // namespace dtensor::ops
