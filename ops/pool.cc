#include "dtensor/ops/pool.h"

#include <string>

#include "dtensor/ops/cpu/pool.h"
#include "dtensor/ops/one_input.h"

namespace dtensor {
namespace {

cpu::Window window_of(const char* op, const DTensor& x, const Pool2dOptions& o) {
  ops::check_floating(op, x);
  if (x.ndim() < 2) {
    throw ArgumentError(std::string(op) + " takes x [...,h,w], got " + to_string(x.shape()));
  }
  const cpu::Window window{o.size, o.stride.value_or(o.size), o.padding, {1, 1}};
  for (int d = 0; d < 2; ++d) {
    const auto k = static_cast<size_t>(d);
    const bool sane = window.size[k] >= 1 && window.stride[k] >= 1 && window.padding[k] >= 0 &&
                      2 * window.padding[k] <= window.size[k];
    if (sane && window.count(d, x.size(x.ndim() - 2 + d)) >= 1) continue;
    throw ArgumentError(std::string(op) + ": a window of " + std::to_string(window.size[k]) +
                        ", stride " + std::to_string(window.stride[k]) + ", padding " +
                        std::to_string(window.padding[k]) + " along dim " +
                        std::to_string(x.ndim() - 2 + d) + " of " + to_string(x.shape()) +
                        "; it has to fit, with padding of at most half of it");
  }
  return window;
}

Rule pool_rule(const char* op, const DTensor& x, const cpu::Window& window) {
  const std::string l = ops::letters_of(x.ndim() - 2);
  return Rule{.op = op,
              .letters = l + "yx->" + l + "YX",
              .uncut = "yx",
              .made = {{'Y', window.count(0, x.size(-2))}, {'X', window.count(1, x.size(-1))}}};
}

}  // namespace

DTensor max_pool2d(const DTensor& x, const Pool2dOptions& options, CallSite site) {
  const cpu::Window window = window_of("max_pool2d", x, options);
  const Rule rule = pool_rule("max_pool2d", x, window);
  const ops::Kernel kernel = [&window](const ops::KernelInfo&, ops::Pieces in) {
    return ops::Tensors{cpu::max_pool2d(in[0], window)};
  };
  const auto backward = [&](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    return [window, x = Saved(in[0], "max_pool2d")](std::span<const DTensor> g) {
      const std::string l = ops::letters_of(g[0].ndim() - 2);
      const Rule back{.op = "max_pool2d_backward",
                      .letters = l + "YX," + l + "yx->" + l + "yx",
                      .uncut = "yxYX",
                      .linear = {{0}},
                      .names = {"g", "x"}};
      const ops::Kernel to_largest = [&](const ops::KernelInfo&, ops::Pieces t) {
        return ops::Tensors{cpu::max_pool2d_backward(t[0], t[1], window)};
      };
      return Grads{ops::run1({.rule = back, .kernel = to_largest}, {g[0], x.value()})};
    };
  };
  return ops::run1({.rule = rule, .kernel = kernel, .backward = backward, .site = site}, {x});
}

DTensor avg_pool2d(const DTensor& x, const Pool2dOptions& options, CallSite site) {
  const cpu::Window window = window_of("avg_pool2d", x, options);
  Rule rule = pool_rule("avg_pool2d", x, window);
  rule.linear = {{0}};
  const std::array<int64_t, 2> image = {x.size(-2), x.size(-1)};
  const auto adjoint = [window, image](const DTensor& g) {
    const std::string l = ops::letters_of(g.ndim() - 2);
    const Rule back{.op = "avg_pool2d_backward",
                    .letters = l + "YX->" + l + "yx",
                    .uncut = "YX",
                    .made = {{'y', image[0]}, {'x', image[1]}},
                    .linear = {{0}}};
    return ops::run_one(back, g, [&](const ops::KernelInfo&, const Tensor& t) {
      return cpu::avg_pool2d_backward(t, window, image);
    });
  };
  return ops::run_one(
      rule, x,
      [&window](const ops::KernelInfo&, const Tensor& t) { return cpu::avg_pool2d(t, window); },
      adjoint, site);
}

}  // namespace dtensor
