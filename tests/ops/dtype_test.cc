// Every op of the registry in f32, f16 and bf16 against the same op in f64, forward and backward.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "dtensor/ops/ops.h"
#include "dtensor/ops/registry.h"

namespace dtensor {
namespace {

struct Values {
  std::vector<double> y;
  std::vector<std::vector<double>> grads;
};

std::vector<double> numbers(const Tensor& t) {
  return t.to(DType::kFloat64).contiguous().to_vector<double>();
}

// The inputs are rounded to `rounded`, and the op then runs in `dtype`.
Values run(const ops::OpEntry& entry, DType rounded, DType dtype) {
  std::vector<DTensor> inputs;
  for (const ops::SampleOperand& operand : entry.operands) {
    Tensor x = ops::sample_tensor(operand, 40 + inputs.size());
    if (operand.below == 0) x = x.to(rounded).to(dtype);
    inputs.emplace_back(x);
    if (operand.below == 0 && operand.wants_grad) inputs.back().set_requires_grad(true);
  }
  const DTensor y = entry.call(inputs);
  Values values{numbers(y.local_tensor()), {}};
  if (!y.requires_grad()) return values;
  const Tensor weights = ops::sample_tensor({y.shape()}, 77).to(rounded).to(y.dtype());
  sum(mul(y, DTensor(weights))).backward();
  for (const DTensor& x : inputs) {
    if (!x.requires_grad()) continue;
    EXPECT_EQ(x.grad().dtype(), x.dtype());
    values.grads.push_back(numbers(x.grad().local_tensor()));
  }
  return values;
}

void expect_close(const std::vector<double>& got, const std::vector<double>& want, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = 0.0;
  for (const double v : want) largest = std::max(largest, std::fabs(v));
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], tolerance * (1 + largest)) << what << " at " << i;
  }
}

class Dtypes : public ::testing::TestWithParam<size_t> {};

TEST_P(Dtypes, AgreeWithF64) {
  const ops::OpEntry& entry = ops::all_ops()[GetParam()];
  // A result is rounded once, and a gradient's operands were: a few units of 2^-24, 2^-11 and 2^-9
  // of the largest number in sight.
  for (const auto& [dtype, unit] : {std::pair{DType::kFloat32, 0x1p-24},
                                    {DType::kFloat16, 0x1p-11},
                                    {DType::kBFloat16, 0x1p-9}}) {
    const Values want = run(entry, dtype, DType::kFloat64);
    const Values got = run(entry, dtype, dtype);
    const std::string name = entry.name + " " + entry.variant + " " + std::string(name_of(dtype));
    expect_close(got.y, want.y, 8 * unit, name);
    ASSERT_EQ(got.grads.size(), want.grads.size());
    for (size_t i = 0; i < got.grads.size(); ++i) {
      expect_close(got.grads[i], want.grads[i], 8 * unit, name + " gradient");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Dtypes, ::testing::Range<size_t>(0, ops::all_ops().size()),
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
