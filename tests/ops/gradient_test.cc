// Every floating op's gradient against central differences in f64, on no mesh.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>
#include <string>

#include "dtensor/ops/ops.h"
#include "dtensor/ops/registry.h"
#include "dtensor/tensor/autograd.h"

namespace dtensor {
namespace {

class Gradient : public ::testing::TestWithParam<size_t> {};

std::vector<DTensor> inputs_of(const ops::OpEntry& entry) {
  std::vector<DTensor> inputs;
  for (const ops::SampleOperand& operand : entry.operands) {
    inputs.emplace_back(ops::sample_tensor(operand, 20 + inputs.size()));
  }
  return inputs;
}

// sum(y * weights), by a plain loop.
double loss_of(const ops::OpEntry& entry, const std::vector<DTensor>& inputs,
               const std::vector<double>& weights) {
  const std::vector<double> y = entry.call(inputs).local_tensor().contiguous().to_vector<double>();
  double loss = 0.0;
  for (size_t i = 0; i < y.size(); ++i) loss += y[i] * weights[i];
  return loss;
}

TEST_P(Gradient, IsTheSlope) {
  const ops::OpEntry& entry = ops::all_ops()[GetParam()];
  std::vector<DTensor> inputs = inputs_of(entry);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ops::SampleOperand& operand = entry.operands[i];
    if (operand.below == 0 && operand.wants_grad) inputs[i].set_requires_grad(true);
  }
  const DTensor y = entry.call(inputs);
  if (!y.requires_grad()) {
    // Steps, whose slope is 0 almost everywhere; nothing else may lose its gradient in silence.
    static const std::set<std::string> steps = {"sign", "floor", "ceil", "round", "trunc"};
    const bool wanted = std::ranges::any_of(
        entry.operands, [](const auto& o) { return o.below == 0 && o.wants_grad; });
    EXPECT_TRUE(!wanted || !is_floating(y.dtype()) || steps.contains(entry.name));
    GTEST_SKIP() << entry.name << " has no gradient";
  }
  const Tensor weights = ops::sample_tensor({y.shape()}, 77);
  sum(mul(y, DTensor(weights))).backward();

  // Central differences err by h² f'''/6 and by 1e-16 f / h; a cast through f32 rounds to 6e-8, so
  // that its slope is taken over a longer step.
  const bool rounds = entry.name == "cast";
  const double h = rounds ? 1e-2 : 1e-5;
  const double tolerance = rounds ? 1e-4 : 1e-8;
  const std::vector<double> w = weights.to_vector<double>();
  for (DTensor& x : inputs) {
    if (!x.requires_grad()) continue;
    const std::vector<double> grad = x.grad().local_tensor().contiguous().to_vector<double>();
    double* values = x.local_tensor().data<double>();
    const NoGrad no_grad;
    for (size_t k = 0; k < grad.size(); ++k) {
      const double at = values[k];
      values[k] = at + h;
      const double above = loss_of(entry, inputs, w);
      values[k] = at - h;
      const double below = loss_of(entry, inputs, w);
      values[k] = at;
      const double slope = (above - below) / (2 * h);
      EXPECT_NEAR(grad[k], slope, tolerance * (1 + std::fabs(slope)))
          << entry.name << " " << entry.variant << " at element " << k;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Gradient, ::testing::Range<size_t>(0, ops::all_ops().size()),
                         [](const auto& info) {
                           const ops::OpEntry& entry = ops::all_ops()[info.param];
                           std::string name = entry.name + "_" + entry.variant;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); },
                               '_');
                           return name + std::to_string(info.param);
                         });

}  // namespace
}  // namespace dtensor
