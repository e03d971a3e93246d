#include "dtensor/ops/registry.h"

#include <algorithm>
#include <utility>

#include "dtensor/base/philox.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/ops.h"
#include "dtensor/ops/samples/samples.h"

namespace dtensor::ops {

const std::vector<OpEntry>& all_ops() {
  static const std::vector<OpEntry> kAll = [] {
    std::vector<OpEntry> all;
    for (const auto& family :
         {product_samples, unary_samples, binary_samples, compare_samples, reduction_samples,
          softmax_samples, norm_samples, loss_samples, view_samples, rearrange_samples,
          indexing_samples, image_samples, attention_samples}) {
      for (OpEntry& entry : family()) all.push_back(std::move(entry));
    }
    return all;
  }();
  return kAll;
}

namespace {

std::vector<DTensor> sample_inputs(const OpEntry& entry) {
  std::vector<DTensor> inputs;
  for (const SampleOperand& operand : entry.operands) {
    inputs.emplace_back(sample_tensor(operand, inputs.size()));
    if (operand.below == 0 && operand.wants_grad) inputs.back().set_requires_grad(true);
  }
  return inputs;
}

}  // namespace

std::vector<Step> steps_of(const OpEntry& entry) {
  const std::vector<DTensor> inputs = sample_inputs(entry);
  std::vector<Step> steps;
  RuleTap tap;
  tap.ran = [&steps](const OpRun& run) {
    steps.push_back({std::string(run.op), {}});
    if (run.rule != nullptr) steps.back().rule = *run.rule;
  };
  const ScopedSlot<RuleTap> scope(std::move(tap));
  static_cast<void>(entry.call(inputs));
  return steps;
}

std::vector<Rule> rules_of(const OpEntry& entry) {
  const std::vector<DTensor> inputs = sample_inputs(entry);
  std::vector<Rule> rules;
  const RuleTap tap{[&rules](Rule& rule) {
    const auto same = [&rule](const Rule& r) {
      return r.op == rule.op && r.letters == rule.letters;
    };
    if (std::ranges::none_of(rules, same)) rules.push_back(rule);
  }};
  DTensor loss;
  {
    const ScopedSlot<RuleTap> scope(tap);
    loss = entry.call(inputs);
  }
  if (loss.requires_grad()) {
    if (loss.ndim() > 0) loss = sum(loss);
    const ScopedSlot<RuleTap> scope(tap);
    loss.backward();
  }
  std::erase_if(rules, [&entry](const Rule& r) {
    return r.op == "spread" && entry.name != "sum" && entry.name != "mean";
  });
  return rules;
}

Tensor sample_tensor(const SampleOperand& operand, uint64_t seed) {
  const int64_t n = operand.shape.numel();
  std::vector<double> values(static_cast<size_t>(n));
  std::vector<int64_t> integers(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const PhiloxBlock bits = philox_at(seed, 7, static_cast<uint64_t>(i));
    const double u = static_cast<double>(bits[0]) / 4294967296.0 + 0.25;
    values[static_cast<size_t>(i)] = operand.positive || (bits[1] & 1U) != 0 ? u : -u;
    if (operand.below > 0) integers[static_cast<size_t>(i)] = bits[0] % operand.below;
  }
  if (operand.below > 0) return Tensor::of(std::span<const int64_t>(integers), operand.shape);
  return Tensor::of(std::span<const double>(values), operand.shape);
}

}  // namespace dtensor::ops
