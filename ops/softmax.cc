#include "dtensor/ops/softmax.h"

#include <string>
#include <vector>

#include "dtensor/ops/binary.h"
#include "dtensor/ops/class_stats.h"
#include "dtensor/ops/cpu/half.h"
#include "dtensor/ops/cpu/softmax.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/twice.h"
#include "dtensor/ops/unary.h"

namespace dtensor {
namespace {

using cpu::SoftmaxForm;

struct Softmax {
  const char* op;
  SoftmaxForm form;
  int dim;
};

// A dim to the end and back.
Tensor to_last(const Tensor& x, int dim) {
  std::vector<int> order;
  for (int d = 0; d < x.ndim(); ++d) {
    if (d != dim) order.push_back(d);
  }
  order.push_back(dim);
  return cpu::f16_as_f32(x.permute(order));
}
Tensor from_last(const Tensor& rows, int dim, DType dtype) {
  std::vector<int> order;
  for (int d = 0; d < rows.ndim() - 1; ++d) order.push_back(d);
  order.insert(order.begin() + dim, rows.ndim() - 1);
  return rows.permute(order).to(dtype).contiguous();
}

// The letter of the dim that is summed over.
std::string class_letter(const DTensor& x, int dim) {
  return {ops::letters_of(x.ndim())[static_cast<size_t>(dim)]};
}

// y (g - sum(g y)), or g - exp(y) sum(g) for the logarithm.
DTensor gradient_of_ops(const Softmax& s, const DTensor& g, const DTensor& y) {
  ops::check_uncut(s.op, y, {s.dim});
  if (s.form == SoftmaxForm::kLog) {
    return sub(g, mul(exp(y), sum(g, {s.dim}, KeepDims::kYes)));
  }
  return mul(y, sub(g, sum(mul(g, y), {s.dim}, KeepDims::kYes)));
}

DTensor gradient(const Softmax& s, const DTensor& g, const DTensor& y) {
  if (grad_enabled()) return gradient_of_ops(s, g, y);
  const std::string l = ops::letters_of(y.ndim());
  const Rule rule{.op = std::string(s.op) + "_backward",
                  .letters = l + "," + l + "->" + l,
                  .communicating = class_letter(y, s.dim),
                  .names = {"g", "y"}};
  const ops::Kernel kernel = [&](const ops::KernelInfo& info, ops::Pieces in) {
    const Tensor rows_g = to_last(in[0], s.dim);
    const Tensor rows_y = to_last(in[1], s.dim);
    const Tensor dot = ops::reduce_classes(cpu::softmax_dot(rows_g, rows_y, s.form),
                                           {info.input(1), s.dim, rows_y}, PartialOp::kSum,
                                           {.op = s.op, .cause = Cause::kAdjoint, .of = s.op});
    const Tensor dx = cpu::softmax_backward(rows_g, rows_y, dot, s.form);
    return ops::Tensors{from_last(dx, s.dim, in[1].dtype())};
  };
  return ops::run1({.rule = rule, .kernel = kernel, .allow_communicating = true}, {g, y});
}

DTensor run(const char* op, SoftmaxForm form, const DTensor& x, const SoftmaxOptions& options,
            CallSite site) {
  ops::check_floating(op, x);
  if (x.ndim() < 1) throw ArgumentError(std::string(op) + " takes x [...,v], got a scalar");
  const Softmax s{op, form, normalize_dim(options.dim, x.ndim(), op)};
  const std::string l = ops::letters_of(x.ndim());
  const Rule rule{.op = op,
                  .letters = l + "->" + l,
                  .communicating = class_letter(x, s.dim),
                  .ask = "{.sharded_classes = true}",
                  .names = {"x"}};
  const ops::Kernel kernel = [&](const ops::KernelInfo& info, ops::Pieces in) {
    const Tensor rows = to_last(in[0], s.dim);
    const cpu::SoftmaxStats stats =
        ops::class_stats({info.input(0), s.dim, rows}, {.op = op, .site = site});
    return ops::Tensors{from_last(cpu::softmax(rows, stats, form), s.dim, in[0].dtype())};
  };
  const auto backward = [s](std::span<const DTensor>, std::span<const DTensor> out) -> BackwardFn {
    return [s, y = Saved::output(out[0], s.op)](std::span<const DTensor> g) {
      return Grads{gradient(s, g[0], y.value())};
    };
  };
  return ops::run1({.rule = rule,
                    .kernel = kernel,
                    .backward = backward,
                    .allow_communicating = options.sharded_classes,
                    .site = site,
                    .twice = true},
                   {x});
}

}  // namespace

DTensor softmax(const DTensor& x, const SoftmaxOptions& options, CallSite site) {
  return run("softmax", SoftmaxForm::kPlain, x, options, site);
}
DTensor log_softmax(const DTensor& x, const SoftmaxOptions& options, CallSite site) {
  return run("log_softmax", SoftmaxForm::kLog, x, options, site);
}

}  // namespace dtensor
