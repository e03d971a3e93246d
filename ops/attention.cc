#include "dtensor/ops/attention.h"

#include <memory>
#include <string>
#include <utility>

#include "dtensor/ops/cpu/attention.h"
#include "dtensor/ops/dispatch.h"

namespace dtensor {
namespace {

constexpr std::string_view kOperands = "btgrd,bsgd,bsgd";

// The local queries begin at the global index of their first row, never at 0.
cpu::AttentionParams params_of(const AttentionOptions& options, const ops::KernelInfo& info) {
  return {.causal = options.causal,
          .query_offset = info.range('t').begin + options.query_offset,
          .scale = 0.0};
}

struct SavedAttention {
  AttentionOptions options;
  Saved q;
  Saved k;
  Saved v;
  std::shared_ptr<cpu::AttentionResult> forward;  // this rank's piece
};

// dq, dk and dv, or where `outputs` ends early the first two.
std::vector<DTensor> run_backward(const SavedAttention& saved, const DTensor& g,
                                  std::string_view outputs, std::vector<std::vector<int>> linear) {
  const Rule rule{.op = "attention_backward",
                  .letters = "btgrd," + std::string(kOperands) + "->" + std::string(outputs),
                  .uncut = "sd",
                  .linear = std::move(linear),
                  .names = {"g", "q", "k", "v"}};
  const ops::Kernel kernel = [&](const ops::KernelInfo& info, std::span<const Tensor> in) {
    cpu::AttentionGrads grads = cpu::attention_backward(in[0], in[1], in[2], in[3], *saved.forward,
                                                        params_of(saved.options, info));
    std::vector<Tensor> all = {std::move(grads.dq), std::move(grads.dk)};
    if (outputs == kOperands) all.push_back(std::move(grads.dv));
    return all;
  };
  return ops::run({.rule = rule, .kernel = kernel},
                  std::vector<DTensor>{g, saved.q.value(), saved.k.value(), saved.v.value()});
}

std::vector<DTensor> gradients(const SavedAttention& saved, const DTensor& g) {
  if (!saved.v.value().spec().has_partial()) {
    return run_backward(saved, g, kOperands, {{0}});
  }
  // A Partial v makes dq and dk Partial, and dv not: two rules. dv does not depend on v.
  std::vector<DTensor> grads = run_backward(saved, g, "btgrd,bsgd", {{0}, {3}});
  const Rule rule{.op = "attention_dv",
                  .letters = "btgrd,btgrd,bsgd->bsgd",
                  .uncut = "sd",
                  .linear = {{0}},
                  .names = {"g", "q", "k"}};
  const ops::Kernel kernel = [&](const ops::KernelInfo& info, std::span<const Tensor> in) {
    const Tensor v = Tensor::zeros(in[2].shape(), in[2].dtype());
    return std::vector<Tensor>{cpu::attention_backward(in[0], in[1], in[2], v, *saved.forward,
                                                       params_of(saved.options, info))
                                   .dv};
  };
  grads.push_back(
      ops::run1({.rule = rule, .kernel = kernel}, {g, saved.q.value(), saved.k.value()}));
  return grads;
}

}  // namespace

DTensor attention(const DTensor& q, const DTensor& k, const DTensor& v,
                  const AttentionOptions& options, CallSite site) {
  ops::check_same_dtype("attention", {q, k, v});
  ops::check_floating("attention", q);
  const Rule rule{.op = "attention",
                  .letters = std::string(kOperands) + "->btgrd",
                  .uncut = "sd",
                  .linear = {{2}},
                  .names = {"q", "k", "v"}};
  const auto forward = std::make_shared<cpu::AttentionResult>();
  const ops::Kernel kernel = [&](const ops::KernelInfo& info, std::span<const Tensor> in) {
    *forward = cpu::attention_forward(in[0], in[1], in[2], params_of(options, info));
    return std::vector<Tensor>{forward->out};
  };
  const auto backward = [&](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    return [saved = SavedAttention{options, Saved(in[0], "attention"), Saved(in[1], "attention"),
                                   Saved(in[2], "attention"), forward}](
               std::span<const DTensor> g) { return gradients(saved, g[0]); };
  };
  return ops::run1({.rule = rule, .kernel = kernel, .backward = backward, .site = site}, {q, k, v});
}

}  // namespace dtensor
