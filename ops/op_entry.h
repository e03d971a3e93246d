// OpEntry: an op of the library as data, with a sample call.

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "dtensor/tensor/dtensor.h"

namespace dtensor::ops {

// An operand of a sample call. Floating ones (f64) take values of both signs, or only positive
// ones, and want a gradient where `wants_grad`; integers lie in [0, below).
struct SampleOperand {
  Shape shape;
  int64_t below = 0;  // 0: floating
  bool wants_grad = true;
  bool positive = false;
};

struct OpEntry {
  std::string name;     // "matmul"
  std::string variant;  // what is special about this sample: "batched", or empty
  std::vector<SampleOperand> operands;
  std::function<DTensor(std::span<const DTensor>)> call;
};

}  // namespace dtensor::ops
