#include "dtensor/ops/registry.h"

#include <algorithm>
#include <array>

#include "dtensor/base/philox.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/ops.h"

namespace dtensor::ops {
namespace {

using In = std::span<const DTensor>;

void add_products(std::vector<OpEntry>& all) {
  all.push_back({"matmul", "", {{{6, 4}}, {{4, 3}}}, [](In x) { return matmul(x[0], x[1]); }});
  all.push_back(
      {"matmul", "batched", {{{3, 4, 2}}, {{3, 2, 5}}}, [](In x) { return matmul(x[0], x[1]); }});
  all.push_back({"linear", "", {{{2, 5, 4}}, {{6, 4}}}, [](In x) { return linear(x[0], x[1]); }});
  all.push_back({"linear", "bias", {{{5, 4}}, {{6, 4}}, {{6}}}, [](In x) {
                   return linear(x[0], x[1], x[2]);
                 }});
}

void add_elementwise(std::vector<OpEntry>& all) {
  const auto binary = [&all](const char* name, DTensor (*f)(const DTensor&, const DTensor&)) {
    const auto call = [f](In x) { return f(x[0], x[1]); };
    all.push_back({name, "", {{{4, 3}}, {{4, 3}}}, call});
    all.push_back({name, "broadcast", {{{5, 4, 3}}, {{4, 1}}}, call});
    all.push_back({name, "scalar", {{{5}}, {{}}}, call});
  };
  binary("add", [](const DTensor& a, const DTensor& b) { return add(a, b); });
  binary("sub", [](const DTensor& a, const DTensor& b) { return sub(a, b); });
  binary("mul", [](const DTensor& a, const DTensor& b) { return mul(a, b); });
  const auto unary = [&all](const char* name, DTensor (*f)(const DTensor&)) {
    all.push_back({name, "", {{{5, 4}}}, [f](In x) { return f(x[0]); }});
  };
  all.push_back({"add", "number", {{{5, 4}}}, [](In x) { return add(x[0], 10.0); }});
  unary("scale", [](const DTensor& a) { return mul(a, -3.0); });
  unary("neg", [](const DTensor& a) { return neg(a); });
  unary("exp", [](const DTensor& a) { return exp(a); });
  unary("relu", [](const DTensor& a) { return relu(a); });
  unary("silu", [](const DTensor& a) { return silu(a); });
  all.push_back({"silu_mul", "", {{{5, 4}}, {{5, 4}}}, [](In x) { return silu_mul(x[0], x[1]); }});
  unary("cast", [](const DTensor& a) { return cast(cast(a, DType::kFloat32), DType::kFloat64); });
}

void add_reductions(std::vector<OpEntry>& all) {
  using Reduce = DTensor (*)(const DTensor&, std::span<const int>);
  const auto reduction = [&all](const char* name, Reduce f) {
    all.push_back({name, "", {{{4, 3, 5}}}, [f](In x) { return f(x[0], {}); }});
    all.push_back({name, "dims", {{{4, 3, 5}}}, [f](In x) {
                     const std::array<int, 2> dims = {0, -1};
                     return f(x[0], std::span<const int>(dims));
                   }});
  };
  reduction("sum", [](const DTensor& a, std::span<const int> d) { return sum(a, d); });
  reduction("mean", [](const DTensor& a, std::span<const int> d) { return mean(a, d); });
  reduction("amax", [](const DTensor& a, std::span<const int> d) { return amax(a, d); });
  reduction("amin", [](const DTensor& a, std::span<const int> d) { return amin(a, d); });
}

void add_views(std::vector<OpEntry>& all) {
  all.push_back({"transpose", "", {{{4, 3, 5}}}, [](In x) { return transpose(x[0], 0, 2); }});
  all.push_back({"reshape", "join", {{{4, 3, 2}}}, [](In x) { return reshape(x[0], {12, 2}); }});
  all.push_back({"reshape", "split", {{{12, 2}}}, [](In x) { return reshape(x[0], {4, 3, 2}); }});
  all.push_back({"narrow", "", {{{4, 5}}}, [](In x) { return narrow(x[0], 1, 1, 3); }});
}

void add_llama(std::vector<OpEntry>& all) {
  all.push_back({"embedding", "", {{{6, 4}}, {{3, 5}, 6, false}}, [](In x) {
                   return embedding(x[0], x[1]);
                 }});
  all.push_back(
      {"rms_norm", "", {{{3, 5, 4}}, {{4}}}, [](In x) { return rms_norm(x[0], x[1], 1e-5); }});
  all.push_back({"rope", "", {{{2, 5, 3, 4}}, {{5, 4}, 0, false}, {{5, 4}, 0, false}}, [](In x) {
                   return rope(x[0], x[1], x[2]);
                 }});
  const std::vector<SampleOperand> heads = {{{2, 5, 3, 2, 4}}, {{2, 5, 3, 4}}, {{2, 5, 3, 4}}};
  all.push_back({"attention", "", heads, [](In x) { return attention(x[0], x[1], x[2]); }});
  all.push_back(
      {"attention", "whole", {{{2, 3, 2, 2, 2}}, {{2, 4, 2, 2}}, {{2, 4, 2, 2}}}, [](In x) {
         return attention(x[0], x[1], x[2], {.causal = false});
       }});
  const std::vector<SampleOperand> classes = {{{4, 3, 6}}, {{4, 3}, 6, false}};
  all.push_back({"cross_entropy", "", classes, [](In x) { return cross_entropy(x[0], x[1]); }});
  all.push_back({"cross_entropy", "sharded_classes, ignore_index", classes, [](In x) {
                   return cross_entropy(x[0], x[1], {.ignore_index = 2, .sharded_classes = true});
                 }});
  all.push_back({"cross_entropy", "label_smoothing", classes,
                 [](In x) { return cross_entropy(x[0], x[1], {.label_smoothing = 0.1}); }});
  all.push_back({"cross_entropy", "sharded_classes, label_smoothing", classes, [](In x) {
                   return cross_entropy(x[0], x[1],
                                        {.sharded_classes = true, .label_smoothing = 0.1});
                 }});
  all.push_back({"log_softmax", "", {{{3, 5}}}, [](In x) { return log_softmax(x[0]); }});
  all.push_back({"log_softmax", "sharded_classes", {{{3, 5}}}, [](In x) {
                   return log_softmax(x[0], {.sharded_classes = true});
                 }});
}

}  // namespace

const std::vector<OpEntry>& all_ops() {
  static const std::vector<OpEntry> kAll = [] {
    std::vector<OpEntry> all;
    add_products(all);
    add_elementwise(all);
    add_reductions(all);
    add_views(all);
    add_llama(all);
    return all;
  }();
  return kAll;
}

std::vector<Rule> rules_of(const OpEntry& entry) {
  std::vector<DTensor> inputs;
  for (const SampleOperand& operand : entry.operands) {
    inputs.emplace_back(sample_tensor(operand, inputs.size()));
    if (operand.below == 0 && operand.wants_grad) inputs.back().set_requires_grad(true);
  }
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
  if (loss.ndim() > 0) loss = sum(loss);
  const ScopedSlot<RuleTap> scope(tap);
  if (loss.requires_grad()) loss.backward();
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
    values[static_cast<size_t>(i)] = (bits[1] & 1U) != 0 ? u : -u;
    if (operand.below > 0) integers[static_cast<size_t>(i)] = bits[0] % operand.below;
  }
  if (operand.below > 0) return Tensor::of(std::span<const int64_t>(integers), operand.shape);
  return Tensor::of(std::span<const double>(values), operand.shape);
}

}  // namespace dtensor::ops
