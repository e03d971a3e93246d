#include "dtensor/ops/rms_norm.h"

#include <string>
#include <utility>

#include "dtensor/ops/cpu/norm.h"
#include "dtensor/ops/dispatch.h"

namespace dtensor {
namespace {

Rule norm_rule(std::string op, std::string letters, std::vector<std::vector<int>> linear,
               std::vector<std::string_view> names) {
  return Rule{.op = std::move(op),
              .letters = std::move(letters),
              .uncut = "h",
              .linear = std::move(linear),
              .names = std::move(names)};
}

struct Wants {
  bool dx = false;
  bool dw = false;
};

DTensor gradient_of_x(const std::string& l, const DTensor& g, const DTensor& x, const DTensor& w,
                      double eps) {
  const Rule rule =
      norm_rule("rms_norm_dx", l + "h," + l + "h,h->" + l + "h", {{0}, {2}}, {"g", "x", "w"});
  const ops::Kernel kernel = [eps](const ops::KernelInfo&, std::span<const Tensor> in) {
    return std::vector<Tensor>{cpu::rms_norm_dx(in[0], in[1], in[2], eps)};
  };
  return ops::run1({.rule = rule, .kernel = kernel}, {g, x, w});
}

DTensor gradient_of_w(const std::string& l, const DTensor& g, const DTensor& x, DType dtype,
                      double eps) {
  const Rule rule = norm_rule("rms_norm_dw", l + "h," + l + "h->h", {{0}}, {"g", "x"});
  const ops::Kernel kernel = [=](const ops::KernelInfo&, std::span<const Tensor> in) {
    return std::vector<Tensor>{cpu::rms_norm_dw(in[0], in[1], eps).to(dtype)};
  };
  return ops::run1({.rule = rule, .kernel = kernel, .dtype = dtype}, {g, x});
}

// Both in one pass; only where w is not Partial, which would make dx Partial and dw not.
std::vector<DTensor> both_gradients(const std::string& l, const DTensor& g, const DTensor& x,
                                    const DTensor& w, double eps) {
  const Rule rule =
      norm_rule("rms_norm_backward", l + "h," + l + "h,h->" + l + "h,h", {{0}}, {"g", "x", "w"});
  const ops::Kernel kernel = [eps](const ops::KernelInfo&, std::span<const Tensor> in) {
    cpu::RmsNormGrads grads = cpu::rms_norm_backward(in[0], in[1], in[2], eps);
    return std::vector<Tensor>{std::move(grads.dx), grads.dw.to(in[2].dtype())};
  };
  return ops::run({.rule = rule, .kernel = kernel}, std::vector<DTensor>{g, x, w});
}

std::vector<DTensor> gradients(Wants wants, const DTensor& g, const DTensor& x, const DTensor& w,
                               double eps) {
  const std::string l = ops::letters_of(x.ndim() - 1, 'i');
  if (wants.dx && wants.dw && !w.spec().has_partial()) return both_gradients(l, g, x, w, eps);
  return {wants.dx ? gradient_of_x(l, g, x, w, eps) : DTensor(),
          wants.dw ? gradient_of_w(l, g, x, w.dtype(), eps) : DTensor()};
}

}  // namespace

DTensor rms_norm(const DTensor& x, const DTensor& w, double eps, CallSite site) {
  ops::check_floating("rms_norm", x);
  ops::check_floating("rms_norm", w);
  if (x.ndim() < 1) throw ArgumentError("rms_norm takes x [...,h], got a scalar");
  const std::string l = ops::letters_of(x.ndim() - 1, 'i');
  const Rule rule = norm_rule("rms_norm", l + "h,h->" + l + "h", {{1}}, {"x", "w"});
  const ops::Kernel kernel = [eps](const ops::KernelInfo&, std::span<const Tensor> in) {
    return std::vector<Tensor>{cpu::rms_norm(in[0], in[1], eps)};
  };
  const auto backward = [eps](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    const Wants wants{in[0].requires_grad(), in[1].requires_grad()};
    return [wants, eps, x = Saved(in[0], "rms_norm"),
            w = Saved(in[1], "rms_norm")](std::span<const DTensor> g) {
      return gradients(wants, g[0], x.value(), w.value(), eps);
    };
  };
  return ops::run1({.rule = rule, .kernel = kernel, .backward = backward, .site = site}, {x, w});
}

}  // namespace dtensor
