#include "dtensor/ops/conv.h"

#include <string>

#include "dtensor/ops/cpu/conv.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/elementwise.h"
#include "dtensor/ops/view.h"

namespace dtensor {
namespace {

// The letters of x, w and y, with the groups' letter where there are several.
struct ConvLetters {
  std::string x;
  std::string w;
  std::string y;
  bool grouped = false;

  explicit ConvLetters(bool several)
      : x(several ? "bgchw" : "bchw"),
        w(several ? "gocuv" : "ocuv"),
        y(several ? "bgoHW" : "boHW"),
        grouped(several) {}
};

// With a dim of one group, which the kernels take.
Tensor with_group(const Tensor& t, int dim) {
  Shape shape;
  for (int d = 0; d < t.ndim(); ++d) {
    if (d == dim) shape.push_back(1);
    shape.push_back(t.shape()[d]);
  }
  return t.reshape(shape);
}
Tensor without_group(const Tensor& t, int dim) {
  Shape shape;
  for (int d = 0; d < t.ndim(); ++d) {
    if (d != dim) shape.push_back(t.shape()[d]);
  }
  return t.reshape(shape);
}

std::array<int64_t, 2> image_of(const DTensor& x) { return {x.size(-2), x.size(-1)}; }

DTensor gradient_of_x(const ConvLetters& l, const DTensor& g, const DTensor& w,
                      const cpu::Window& window, std::array<int64_t, 2> image) {
  const Rule rule{.op = "conv2d_dx",
                  .letters = l.y + "," + l.w + "->" + l.x,
                  .uncut = "HWuv",
                  .made = {{'h', image[0]}, {'w', image[1]}},
                  .linear = {{0}, {1}},
                  .names = {"g", "w"}};
  const ops::Kernel kernel = [&](const ops::KernelInfo&, ops::Pieces in) {
    if (l.grouped) return ops::Tensors{cpu::conv2d_dx(in[0], in[1], window, image)};
    return ops::Tensors{without_group(
        cpu::conv2d_dx(with_group(in[0], 1), with_group(in[1], 0), window, image), 1)};
  };
  return ops::run1({.rule = rule, .kernel = kernel}, {g, w});
}

DTensor gradient_of_w(const ConvLetters& l, const DTensor& x, const DTensor& g,
                      const cpu::Window& window) {
  const Rule rule{.op = "conv2d_dw",
                  .letters = l.x + "," + l.y + "->" + l.w,
                  .uncut = "hwHW",
                  .made = {{'u', window.size[0]}, {'v', window.size[1]}},
                  .linear = {{0}, {1}},
                  .names = {"x", "g"}};
  const ops::Kernel kernel = [&](const ops::KernelInfo&, ops::Pieces in) {
    if (l.grouped) return ops::Tensors{cpu::conv2d_dw(in[0], in[1], window)};
    return ops::Tensors{
        without_group(cpu::conv2d_dw(with_group(in[0], 1), with_group(in[1], 1), window), 0)};
  };
  return ops::run1({.rule = rule, .kernel = kernel}, {x, g});
}

DTensor convolve(const ConvLetters& l, const DTensor& x, const DTensor& w,
                 const cpu::Window& window, CallSite site) {
  const Rule rule{.op = "conv2d",
                  .letters = l.x + "," + l.w + "->" + l.y,
                  .uncut = "hwuv",
                  .made = {{'H', window.count(0, x.size(-2))}, {'W', window.count(1, x.size(-1))}},
                  .linear = {{0}, {1}},
                  .names = {"x", "w"}};
  const ops::Kernel kernel = [&](const ops::KernelInfo&, ops::Pieces in) {
    if (l.grouped) return ops::Tensors{cpu::conv2d(in[0], in[1], window)};
    return ops::Tensors{
        without_group(cpu::conv2d(with_group(in[0], 1), with_group(in[1], 0), window), 1)};
  };
  const auto backward = [&](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    const bool wants_x = in[0].requires_grad();
    const bool wants_w = in[1].requires_grad();
    return [l, window, wants_x, wants_w, image = image_of(in[0]),
            x = wants_w ? Saved(in[0], "conv2d") : Saved(),
            w = wants_x ? Saved(in[1], "conv2d") : Saved()](std::span<const DTensor> g) {
      Grads grads(2);
      if (wants_x) grads[0] = gradient_of_x(l, g[0], w.value(), window, image);
      if (wants_w) grads[1] = gradient_of_w(l, x.value(), g[0], window);
      return grads;
    };
  };
  return ops::run1({.rule = rule, .kernel = kernel, .backward = backward, .site = site}, {x, w});
}

cpu::Window checked_window(const DTensor& x, const DTensor& w, const Conv2dOptions& o) {
  const bool dims = x.ndim() == 4 && w.ndim() == 4;
  if (!dims || o.groups < 1 || x.size(1) != w.size(1) * o.groups || w.size(0) % o.groups != 0) {
    throw ArgumentError("conv2d takes x [b,c,h,w] and w [o,c/groups,u,v], got " +
                        to_string(x.shape()) + " and " + to_string(w.shape()) + " in " +
                        std::to_string(o.groups) + " groups");
  }
  const cpu::Window window{{w.size(2), w.size(3)}, o.stride, o.padding, o.dilation};
  for (size_t d = 0; d < 2; ++d) {
    if (window.size[d] < 1 || o.stride[d] < 1 || o.padding[d] < 0 || o.dilation[d] < 1 ||
        window.count(static_cast<int>(d), x.size(2 + static_cast<int>(d))) < 1) {
      throw ArgumentError("conv2d: no window of " + to_string(w.shape()) + " fits into " +
                          to_string(x.shape()) + " with stride " + std::to_string(o.stride[d]) +
                          ", padding " + std::to_string(o.padding[d]) + ", dilation " +
                          std::to_string(o.dilation[d]));
    }
  }
  return window;
}

}  // namespace

DTensor conv2d(const DTensor& x, const DTensor& w, const DTensor& bias,
               const Conv2dOptions& options, CallSite site) {
  ops::check_same_dtype("conv2d", {x, w});
  ops::check_floating("conv2d", x);
  const cpu::Window window = checked_window(x, w, options);
  const ConvLetters letters(options.groups > 1);
  DTensor y;
  if (letters.grouped) {
    const int64_t g = options.groups;
    y = flatten(convolve(letters, unflatten(x, 1, {g, -1}, site), unflatten(w, 0, {g, -1}, site),
                         window, site),
                1, 2, site);
  } else {
    y = convolve(letters, x, w, window, site);
  }
  if (!bias.defined()) return y;
  return add(y, reshape(bias, {bias.numel(), 1, 1}, site), site);
}

}  // namespace dtensor
