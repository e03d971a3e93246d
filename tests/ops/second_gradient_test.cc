// Gradients of gradients, against central differences of gradients in f64, for every op whose
// backward can be recorded; the others are errors that name the op.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "dtensor/ops/ops.h"
#include "dtensor/ops/registry.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/error_of.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::run_ranks;
using Values = std::vector<double>;

Values values_of(const DTensor& t) { return t.local_tensor().contiguous().to_vector<double>(); }

std::vector<DTensor> inputs_of(const ops::OpEntry& entry) {
  std::vector<DTensor> inputs;
  for (const ops::SampleOperand& operand : entry.operands) {
    inputs.emplace_back(ops::sample_tensor(operand, 20 + inputs.size()));
    if (operand.below == 0 && operand.wants_grad) inputs.back().set_requires_grad(true);
  }
  return inputs;
}

// The gradients of sum(y^2 / 2 + y w); the square makes those of linear ops depend on their inputs.
std::vector<DTensor> gradients(const ops::OpEntry& entry, std::vector<DTensor>& inputs,
                               bool create_graph) {
  const DTensor y = entry.call(inputs);
  const DTensor w(ops::sample_tensor({y.shape()}, 77));
  DTensor loss = sum(mul(y, add(mul(y, 0.5), w)));
  loss.backward({.create_graph = create_graph});
  std::vector<DTensor> grads;
  for (DTensor& x : inputs) {
    grads.push_back(x.grad());
    x.set_grad({});
  }
  return grads;
}

// sum over all inputs of gradient times a fixed v.
double product_with_gradients(const ops::OpEntry& entry, std::vector<DTensor>& inputs) {
  double sum = 0.0;
  const std::vector<DTensor> grads = gradients(entry, inputs, false);
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined()) continue;
    const Values g = values_of(grads[i]);
    const Values v = ops::sample_tensor({grads[i].shape()}, 50 + i).to_vector<double>();
    for (size_t k = 0; k < g.size(); ++k) sum += g[k] * v[k];
  }
  return sum;
}

void check(const ops::OpEntry& entry, std::vector<DTensor>& inputs,
           const std::vector<DTensor>& grads) {
  DTensor loss;
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined()) continue;
    const DTensor v(ops::sample_tensor({grads[i].shape()}, 50 + i));
    const DTensor part = sum(mul(grads[i], v));
    loss = loss.defined() ? add(loss, part) : part;
  }
  loss.backward();
  constexpr double kStep = 1e-5;
  std::vector<Values> seconds(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].requires_grad()) continue;
    ASSERT_TRUE(inputs[i].grad().defined()) << entry.name << " " << entry.variant;
    seconds[i] = values_of(inputs[i].grad());
    inputs[i].set_grad({});
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].requires_grad()) continue;
    const Values& second = seconds[i];
    double* at = inputs[i].local_tensor().data<double>();
    for (size_t k = 0; k < second.size(); ++k) {
      const double before = at[k];
      at[k] = before + kStep;
      const double above = product_with_gradients(entry, inputs);
      at[k] = before - kStep;
      const double below = product_with_gradients(entry, inputs);
      at[k] = before;
      const double slope = (above - below) / (2 * kStep);
      EXPECT_NEAR(second[k], slope, 1e-7 * (1 + std::fabs(slope)))
          << entry.name << " " << entry.variant << " at " << k;
    }
  }
}

TEST(SecondGradient, IsTheSlopeOfTheGradientOrAnErrorThatNamesTheOp) {
  std::set<std::string> checked;
  std::set<std::string> refused;
  for (const ops::OpEntry& entry : ops::all_ops()) {
    if (entry.name == "cast") continue;  // rounds to f32, which differences see
    std::vector<DTensor> inputs = inputs_of(entry);
    const DTensor y = entry.call(inputs);
    if (!y.requires_grad() || y.dtype() != DType::kFloat64) continue;
    std::vector<DTensor> grads;
    const std::string text = error_of([&] { grads = gradients(entry, inputs, true); });
    if (text.empty()) {
      check(entry, inputs, grads);
      checked.insert(entry.name);
    } else {
      EXPECT_THAT(text, HasSubstr("create_graph through "));
      refused.insert(entry.name);
    }
    for (DTensor& x : inputs) x.set_grad({});
  }
  // Those that docs/autograd.md lists.
  EXPECT_THAT(refused, ElementsAre("attention", "avg_pool2d", "conv2d", "max_pool2d", "prod"));
  for (const std::string& op : refused) EXPECT_EQ(checked.count(op), 0U) << op;
}

// Weights in f32 beside values in 16 bits: recorded gradients are what the others are, and f16 does
// not overflow on the way.
TEST(SecondGradient, OfNormsTakesWeightsInF32) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (const bool layer : {false, true}) {
      std::vector<std::vector<float>> got[2];
      for (const bool recorded : {false, true}) {
        DTensor x(Tensor::of<double>({300, -200, 100, 50, 7, 9}, {2, 3}).to(dtype));
        DTensor w(Tensor::of<float>({0.5, -2, 3}, {3}));
        DTensor b(Tensor::of<float>({1, 2, 3}, {3}));
        std::vector<DTensor> leaves = {x, w};
        if (layer) leaves.push_back(b);
        for (DTensor& t : leaves) t.set_requires_grad(true);
        const DTensor y = layer ? layer_norm(x, w, b) : rms_norm(x, w, 1e-6);
        sum(mul(cast(y, DType::kFloat32), DTensor(Tensor::of<float>({1, 2, 3, 4, 5, 6}, {2, 3}))))
            .backward({.create_graph = recorded});
        for (const DTensor& t : leaves) {
          EXPECT_EQ(t.grad().dtype(), t.dtype());
          got[recorded ? 1 : 0].push_back(
              t.grad().local_tensor().to(DType::kFloat32).to_vector<float>());
        }
        if (recorded) sum(mul(leaves[1].grad(), 2.0)).backward();
        for (DTensor& t : leaves) t.set_grad({});
      }
      for (size_t i = 0; i < got[0].size(); ++i) {
        for (size_t k = 0; k < got[0][i].size(); ++k) {
          EXPECT_NEAR(got[1][i][k], got[0][i][k], 0x1p-7 * (std::fabs(got[0][i][k]) + 0x1p-8));
        }
      }
    }
  }
}

// d/dx of (d/dx of sum (w x)^2) over a cut batch: P(sum) gradients are resolved on the way.
TEST(SecondGradient, OnAMeshIsThatOfTheWhole) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    DTensor w = distribute(Tensor::of<double>({3, 5}, {2}), mesh, {});
    w.set_requires_grad(true);
    const DTensor x = distribute(Tensor::of<double>({1, 2, 3, 4, 5, 6}, {3, 2}), mesh, {Shard(0)});
    const DTensor y = mul(x, w);
    DTensor loss = sum(mul(mul(y, y), y));  // sum x^3 w^3
    loss.backward({.create_graph = true});
    const DTensor first = w.grad();  // 3 w^2 sum x^3
    EXPECT_TRUE(first.spec().is_replicated());
    w.set_grad({});
    sum(first).backward();  // 6 w sum x^3
    EXPECT_THAT(full(w.grad()).to_vector<double>(),
                ElementsAre(6 * 3 * (1 + 27 + 125), 6 * 5 * (8 + 64 + 216)));
  });
}

}  // namespace
}  // namespace dtensor
