#include "dtensor/ops/log_softmax.h"

#include <cmath>
#include <string>

#include "dtensor/ops/class_stats.h"
#include "dtensor/ops/cpu/elementwise.h"
#include "dtensor/ops/cpu/reduce.h"
#include "dtensor/ops/dispatch.h"

namespace dtensor {
namespace {

// [...] as [...,1].
Tensor column(const Tensor& rows) {
  Shape shape = rows.shape();
  shape.push_back(1);
  return rows.reshape(shape);
}

Tensor log_of(const Tensor& x) {
  const Tensor from = x.to(DType::kFloat64).contiguous();
  const Tensor result = Tensor::empty(x.shape(), DType::kFloat64);
  for (int64_t i = 0; i < result.numel(); ++i) {
    result.data<double>()[i] = std::log(from.data<double>()[i]);
  }
  return result.to(x.dtype());
}

// g - softmax * (sum of g over the row), with y = log softmax.
DTensor gradient(const DTensor& g, const DTensor& y) {
  const std::string l = ops::letters_of(y.ndim() - 1);
  const Rule rule{.op = "log_softmax_backward",
                  .letters = l + "v," + l + "v->" + l + "v",
                  .communicating = "v",
                  .names = {"g", "y"}};
  const ops::Kernel kernel = [&](const ops::KernelInfo& info, std::span<const Tensor> in) {
    const DType wide = in[1].dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    const int last[] = {y.ndim() - 1};
    const Tensor wide_g = in[0].to(wide);
    const Tensor sums = ops::reduce_over_ranks(
        cpu::sum(wide_g, last), info.input(0),
        {l + "v->" + l,
         PartialOp::kSum,
         {.op = "log_softmax", .cause = Cause::kAdjoint, .of = "log_softmax"}});
    const Tensor part = cpu::mul(cpu::exp(in[1].to(wide)), column(sums));
    return std::vector<Tensor>{cpu::sub(wide_g, part).to(in[1].dtype())};
  };
  return ops::run1({.rule = rule, .kernel = kernel, .allow_communicating = true}, {g, y});
}

}  // namespace

DTensor log_softmax(const DTensor& x, const LogSoftmaxOptions& options, CallSite site) {
  ops::check_floating("log_softmax", x);
  if (x.ndim() < 1) throw ArgumentError("log_softmax takes x [...,v], got a scalar");
  const std::string l = ops::letters_of(x.ndim() - 1);
  const Rule rule{.op = "log_softmax",
                  .letters = l + "v->" + l + "v",
                  .communicating = "v",
                  .ask = "{.sharded_classes = true}",
                  .names = {"x"}};
  const ops::Kernel kernel = [&](const ops::KernelInfo& info, std::span<const Tensor> in) {
    const cpu::SoftmaxStats stats =
        ops::class_stats(info.input(0), in[0], {.op = "log_softmax", .site = site});
    // The maximum goes first: added to the logarithm it would swallow its digits.
    const Tensor shifted = cpu::sub(in[0].to(stats.max.dtype()), column(stats.max));
    const Tensor y = cpu::sub(shifted, column(log_of(stats.sum)));
    return std::vector<Tensor>{y.to(in[0].dtype())};
  };
  const auto backward = [](std::span<const DTensor>, std::span<const DTensor> out) -> BackwardFn {
    return [y = Saved(out[0], "log_softmax")](std::span<const DTensor> g) {
      return std::vector<DTensor>{gradient(g[0], y.value())};
    };
  };
  return ops::run1({.rule = rule,
                    .kernel = kernel,
                    .backward = backward,
                    .allow_communicating = options.sharded_classes,
                    .site = site},
                   {x});
}

}  // namespace dtensor
