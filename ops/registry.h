// The ops of the library as data: what the prover of the rules, `dtensor rules` and the docs go
// over. Nothing registers itself.

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "dtensor/placement/rule.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor::ops {

// An operand of a sample call. Floating ones (f64) take any values and want a gradient where
// `wants_grad`; integers lie in [0, below).
struct SampleOperand {
  Shape shape;
  int64_t below = 0;  // 0: floating
  bool wants_grad = true;
};

struct OpEntry {
  std::string name;     // "matmul"
  std::string variant;  // what is special about this sample: "batched", or empty
  std::vector<SampleOperand> operands;
  std::function<DTensor(std::span<const DTensor>)> call;
};

// In the order of ops.h; an op may have several entries.
const std::vector<OpEntry>& all_ops();

// The rules that a sample call runs by, forward and then backward. Irregular ops (reshape, narrow)
// have none.
std::vector<Rule> rules_of(const OpEntry& entry);

// A whole operand with reproducible values of both signs, 0.25 <= |x| < 1.25, or integers.
Tensor sample_tensor(const SampleOperand& operand, uint64_t seed);

}  // namespace dtensor::ops
