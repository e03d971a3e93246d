// The ops of the library as data: what the prover of the rules, `dtensor rules` and the docs go
// over. Nothing registers itself.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dtensor/ops/op_entry.h"
#include "dtensor/placement/rule.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::ops {

// By family (dtensor/ops/samples/samples.h); an op may have several entries.
const std::vector<OpEntry>& all_ops();

// The rules that a sample call runs by, forward and then backward. Irregular ops (reshape, narrow)
// have none.
std::vector<Rule> rules_of(const OpEntry& entry);

// What a sample call runs in forward, in order: one op, or those that it is made of.
struct Step {
  std::string op;
  std::optional<Rule> rule;  // irregular ops have none
};
std::vector<Step> steps_of(const OpEntry& entry);

// A whole operand with reproducible values, 0.25 <= |x| < 1.25 (of both signs, or positive), or
// integers.
Tensor sample_tensor(const SampleOperand& operand, uint64_t seed);

}  // namespace dtensor::ops
