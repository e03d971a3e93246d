#include "dtensor/ops/variance.h"

#include <string>
#include <vector>

#include "dtensor/ops/binary.h"
#include "dtensor/ops/cpu/binary.h"
#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/ops/cpu/reduce.h"
#include "dtensor/ops/cpu/unary.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/rank_reduction.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/reduction.h"
#include "dtensor/ops/twice.h"
#include "dtensor/ops/unary.h"
#include "dtensor/ops/where.h"

namespace dtensor {
namespace {

using ops::Reduction;

// g 2 (x - mean) / (count - correction).
DTensor gradient(const Reduction& r, double divisor, const DTensor& g, const DTensor& x,
                 const DTensor& mean) {
  if (grad_enabled()) {
    ops::check_uncut("var", x, r.dims);
    const DTensor center = r.dims.empty() ? x : dtensor::mean(x, r.dims, KeepDims::kYes);
    return mul(sub(x, center), ops::spread_to(r, div(g, divisor / 2), x));
  }
  const Rule rule = r.gradient("var_backward", {"mean"});
  const ops::Kernel kernel = [&](const ops::KernelInfo&, ops::Pieces in) {
    const Shape& shape = in[1].shape();
    const Tensor distance = cpu::sub(in[1].to(in[2].dtype()), ops::expand_back(in[2], r, shape));
    const Tensor scaled = cpu::binary(cpu::BinaryOp::kDiv, in[0].to(in[2].dtype()), divisor / 2);
    return ops::Tensors{cpu::mul(distance, ops::expand_back(scaled, r, shape)).to(in[1].dtype())};
  };
  return ops::run1({.rule = rule, .kernel = kernel, .dtype = x.dtype()}, {g, x, mean});
}

}  // namespace

DTensor var(const DTensor& a, const Dims& dims, const VarOptions& options, CallSite site) {
  ops::check_floating("var", a);
  const Reduction r = ops::reduction_of("var", a, dims, options.keep);
  const double divisor = static_cast<double>(r.count) - options.correction;
  Rule rule = r.rule("var");
  rule.letters += "," + r.out;  // and the mean, for the gradient
  rule.communicating = r.reduced;
  rule.reduced = r.reduced;
  rule.ask = "{.sharded_dims = true}";
  const ops::Kernel kernel = [&](const ops::KernelInfo& info, ops::Pieces in) {
    const ops::RankReduction over{
        r.all + "->" + r.kept, PartialOp::kSum, {.op = "var", .site = site}};
    const Tensor x = in[0].to(cpu::accumulator_of(in[0].dtype()));
    const Tensor total = ops::reduce_over_ranks(cpu::sum(x, r.dims), info.input(0), over);
    const Tensor mean = cpu::binary(cpu::BinaryOp::kDiv, total, static_cast<double>(r.count));
    const Tensor distance = cpu::sub(x, ops::expand_back(mean, r, x.shape()));
    const Tensor squares = cpu::sum(cpu::unary(cpu::UnaryOp::kSquare, distance), r.dims);
    const Tensor y = cpu::binary(cpu::BinaryOp::kDiv,
                                 ops::reduce_over_ranks(squares, info.input(0), over), divisor);
    return ops::Tensors{ops::finished(y, r, x.shape()).to(in[0].dtype()),
                        ops::finished(mean, r, x.shape())};
  };
  const auto backward = [&](std::span<const DTensor> in,
                            std::span<const DTensor> out) -> BackwardFn {
    return [r, divisor, x = Saved(in[0], "var"),
            mean = Saved(out[1].detach(), "var")](std::span<const DTensor> g) {
      return Grads{gradient(r, divisor, g[0], x.value(), mean.value())};
    };
  };
  return ops::run1({.rule = rule,
                    .kernel = kernel,
                    .backward = backward,
                    .allow_communicating = options.sharded_dims,
                    .second_dtype = cpu::accumulator_of(a.dtype()),
                    .site = site,
                    .twice = true},
                   {a});
}

DTensor stddev(const DTensor& a, const Dims& dims, const VarOptions& options, CallSite site) {
  // The root of 1 is taken where the variance is 0, for a gradient of 0 there and not inf * 0.
  const DTensor square = var(a, dims, options, site);
  return where(square, sqrt(where(square, square, 1.0, site), site), 0.0, site);
}

}  // namespace dtensor
