#include "dtensor/ops/attention.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "dtensor/ops/cpu/attention.h"
#include "dtensor/ops/dispatch.h"

namespace dtensor {
namespace {

constexpr std::string_view kOperands = "btgrd,bsgd,bsgd";

// The letters of a mask, aligned to bgrts from the right. A dim of size 1 that is repeated is a
// letter of its own, which may not be cut. ArgumentError where it does not fit.
struct MaskLetters {
  std::string letters;
  std::string uncut;
};

MaskLetters mask_letters(const DTensor& mask, const DTensor& q, const DTensor& k) {
  if (!mask.defined()) return {};
  const std::string all = "bgrts";
  const Shape full{q.size(0), q.size(2), q.size(3), q.size(1), k.size(1)};
  const int lead = full.ndim() - mask.ndim();
  bool fits = lead >= 0 && (mask.dtype() == DType::kBool || mask.dtype() == q.dtype());
  MaskLetters l;
  for (int d = std::max(0, lead); fits && d < full.ndim(); ++d) {
    char letter = all[static_cast<size_t>(d)];
    if (mask.size(d - lead) != full[d]) {
      fits = mask.size(d - lead) == 1;
      letter = static_cast<char>(letter - 'a' + 'A');
      l.uncut += letter;
    }
    l.letters += letter;
  }
  if (fits && !mask.requires_grad()) return l;
  throw ArgumentError(
      "attention: the mask is " + std::string(name_of(mask.dtype())) + to_string(mask.shape()) +
      (mask.requires_grad()
           ? " and requires grad, which it does not get"
           : ", the scores [b,g,r,t,s] are " + std::string(name_of(q.dtype())) + to_string(full)) +
      "; give one of bool or of q's dtype that broadcasts to them");
}

// The local queries begin at the global index of their first row, never at 0. `in` begins with q
// and k, and ends with the mask where there is one.
cpu::AttentionParams params_of(const AttentionOptions& options, const ops::KernelInfo& info,
                               const Tensor& q, const Tensor& k, ops::Pieces in) {
  cpu::AttentionParams params{.causal = options.causal,
                              .query_offset = info.range('t').begin + options.query_offset,
                              .scale = options.scale};
  if (options.mask.defined()) {
    params.mask = in.back().expand({q.size(0), q.size(2), q.size(3), q.size(1), k.size(1)});
  }
  return params;
}

// A rule over g, q, k, v or some of them, and the mask where there is one.
Rule attention_rule(std::string op, const std::string& operands, const std::string& outputs,
                    const MaskLetters& mask, std::vector<std::string_view> names) {
  Rule rule{.op = std::move(op), .letters = operands, .uncut = "sd" + mask.uncut};
  if (!mask.letters.empty()) {
    rule.letters += "," + mask.letters;
    names.emplace_back("mask");
  }
  rule.letters += "->" + outputs;
  rule.names = std::move(names);
  return rule;
}

std::vector<DTensor> with_mask(std::vector<DTensor> operands, const DTensor& mask) {
  if (mask.defined()) operands.push_back(mask);
  return operands;
}

struct SavedAttention {
  AttentionOptions options;
  Saved q;
  Saved k;
  Saved v;
  Saved mask;  // undefined where there is none
  MaskLetters mask_letters;
  std::shared_ptr<cpu::AttentionResult> forward;  // this rank's piece

  DTensor mask_value() const { return options.mask.defined() ? mask.value() : DTensor(); }
};

// dq, dk and dv, or where `outputs` ends early the first two.
std::vector<DTensor> run_backward(const SavedAttention& saved, const DTensor& g,
                                  const std::string& outputs,
                                  std::vector<std::vector<int>> linear) {
  Rule rule = attention_rule("attention_backward", "btgrd," + std::string(kOperands), outputs,
                             saved.mask_letters, {"g", "q", "k", "v"});
  rule.linear = std::move(linear);
  const ops::Kernel kernel = [&](const ops::KernelInfo& info, ops::Pieces in) {
    cpu::AttentionGrads grads =
        cpu::attention_backward(in[0], in[1], in[2], in[3], *saved.forward,
                                params_of(saved.options, info, in[1], in[2], in));
    std::vector<Tensor> all = {std::move(grads.dq), std::move(grads.dk)};
    if (outputs == kOperands) all.push_back(std::move(grads.dv));
    return all;
  };
  return ops::run(
      {.rule = rule, .kernel = kernel},
      with_mask({g, saved.q.value(), saved.k.value(), saved.v.value()}, saved.mask_value()));
}

std::vector<DTensor> gradients(const SavedAttention& saved, const DTensor& g) {
  if (!saved.v.value().spec().has_partial()) {
    return run_backward(saved, g, std::string(kOperands), {{0}});
  }
  // A Partial v makes dq and dk Partial, and dv not: two rules. dv does not depend on v.
  std::vector<DTensor> grads = run_backward(saved, g, "btgrd,bsgd", {{0}, {3}});
  Rule rule = attention_rule("attention_dv", "btgrd,btgrd,bsgd", "bsgd", saved.mask_letters,
                             {"g", "q", "k"});
  rule.linear = {{0}};
  const ops::Kernel kernel = [&](const ops::KernelInfo& info, ops::Pieces in) {
    const Tensor v = Tensor::zeros(in[2].shape(), in[2].dtype());
    return ops::Tensors{cpu::attention_backward(in[0], in[1], in[2], v, *saved.forward,
                                                params_of(saved.options, info, in[1], in[2], in))
                            .dv};
  };
  grads.push_back(ops::run({.rule = rule, .kernel = kernel},
                           with_mask({g, saved.q.value(), saved.k.value()}, saved.mask_value()))
                      .front());
  return grads;
}

}  // namespace

DTensor attention(const DTensor& q, const DTensor& k, const DTensor& v,
                  const AttentionOptions& options, CallSite site) {
  ops::check_same_dtype("attention", {q, k, v});
  ops::check_floating("attention", q);
  if (q.ndim() != 5 || k.ndim() != 4) {
    throw ArgumentError("attention takes q [b,t,g,r,d], k and v [b,s,g,d], got " +
                        to_string(q.shape()) + ", " + to_string(k.shape()) + " and " +
                        to_string(v.shape()));
  }
  const MaskLetters mask = mask_letters(options.mask, q, k);
  Rule rule = attention_rule("attention", std::string(kOperands), "btgrd", mask, {"q", "k", "v"});
  rule.linear = {{2}};
  const auto forward = std::make_shared<cpu::AttentionResult>();
  const ops::Kernel kernel = [&](const ops::KernelInfo& info, ops::Pieces in) {
    *forward =
        cpu::attention_forward(in[0], in[1], in[2], params_of(options, info, in[0], in[1], in));
    return ops::Tensors{forward->out};
  };
  const auto backward = [&](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    SavedAttention saved{.options = options,
                         .q = Saved(in[0], "attention"),
                         .k = Saved(in[1], "attention"),
                         .v = Saved(in[2], "attention"),
                         .mask = in.size() > 3 ? Saved(in[3], "attention") : Saved(),
                         .mask_letters = mask,
                         .forward = forward};
    return [saved = std::move(saved)](std::span<const DTensor> g) {
      std::vector<DTensor> grads = gradients(saved, g[0]);
      if (saved.options.mask.defined()) grads.emplace_back();
      return grads;
    };
  };
  return ops::run({.rule = rule, .kernel = kernel, .backward = backward, .site = site},
                  with_mask({q, k, v}, options.mask))
      .front();
}

}  // namespace dtensor
