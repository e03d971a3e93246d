// Sample calls of the ops, by family: what ops/registry.h puts together. A family's file has one
// entry for each op and each of its forms whose rule differs. Values have to tell a wrong row from
// a right one: an op that is constant over the sample proves nothing.

#pragma once

#include <span>
#include <vector>

#include "dtensor/ops/op_entry.h"

namespace dtensor::ops {

using SampleInputs = std::span<const DTensor>;

std::vector<OpEntry> product_samples();
std::vector<OpEntry> unary_samples();
std::vector<OpEntry> binary_samples();
std::vector<OpEntry> compare_samples();
std::vector<OpEntry> reduction_samples();
std::vector<OpEntry> softmax_samples();
std::vector<OpEntry> norm_samples();
std::vector<OpEntry> loss_samples();
std::vector<OpEntry> view_samples();
std::vector<OpEntry> rearrange_samples();
std::vector<OpEntry> indexing_samples();
std::vector<OpEntry> image_samples();
std::vector<OpEntry> attention_samples();

}  // namespace dtensor::ops
