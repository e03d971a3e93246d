#include "dtensor/ops/norm.h"

#include <cmath>
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

// g x / y, and 0 where y is.
DTensor gradient(const Reduction& r, const DTensor& g, const DTensor& x, const DTensor& y) {
  if (grad_enabled()) {
    ops::check_uncut("norm", x, r.dims);
    const DTensor ratio = where(y, div(g, where(y, y, 1.0)), 0.0);
    return mul(x, ops::spread_to(r, ratio, x));
  }
  const Rule rule = r.gradient("norm_backward", {"y"});
  const ops::Kernel kernel = [&](const ops::KernelInfo&, ops::Pieces in) {
    const Tensor ratio = cpu::binary(cpu::BinaryOp::kDiv, in[0], in[2]);
    const Tensor safe = cpu::where(in[2], ratio, Tensor::zeros({}, in[2].dtype()));
    return ops::Tensors{cpu::mul(in[1], ops::expand_back(safe, r, in[1].shape()))};
  };
  return ops::run1({.rule = rule, .kernel = kernel}, {g, x, y});
}

DTensor euclidean(const DTensor& a, const Dims& dims, const NormOptions& options, CallSite site) {
  const Reduction r = ops::reduction_of("norm", a, dims, options.keep);
  Rule rule = r.rule("norm");
  rule.communicating = r.reduced;
  rule.reduced = r.reduced;
  rule.ask = "{.sharded_dims = true}";
  const ops::Kernel kernel = [&](const ops::KernelInfo& info, ops::Pieces in) {
    const Tensor x = in[0].to(cpu::accumulator_of(in[0].dtype()));
    const Tensor total = ops::reduce_over_ranks(
        cpu::sum(cpu::unary(cpu::UnaryOp::kSquare, x), r.dims), info.input(0),
        {r.all + "->" + r.kept, PartialOp::kSum, {.op = "norm", .site = site}});
    const Tensor y = cpu::unary(cpu::UnaryOp::kSqrt, total).to(in[0].dtype());
    return ops::Tensors{ops::finished(y, r, x.shape())};
  };
  const auto backward = [&](std::span<const DTensor> in,
                            std::span<const DTensor> out) -> BackwardFn {
    return [r, x = Saved(in[0], "norm"),
            y = Saved::output(out[0], "norm")](std::span<const DTensor> g) {
      return Grads{gradient(r, g[0], x.value(), y.value())};
    };
  };
  return ops::run1({.rule = rule,
                    .kernel = kernel,
                    .backward = backward,
                    .allow_communicating = options.sharded_dims,
                    .site = site,
                    .twice = true},
                   {a});
}

}  // namespace

DTensor norm(const DTensor& a, const Dims& dims, const NormOptions& options, CallSite site) {
  ops::check_floating("norm", a);
  if (options.p == 2.0) return euclidean(a, dims, options, site);
  if (options.p == 1.0) return sum(abs(a, site), dims, options.keep, site);
  if (options.p == INFINITY) {
    // Of nothing it is 0; the largest of nothing would be -inf.
    const bool none = ops::reduction_of("norm", a, dims, options.keep).count == 0;
    return (none ? sum : amax)(abs(a, site), dims, options.keep, site);
  }
  throw ArgumentError("norm: p is " + std::to_string(options.p) + "; it takes 1, 2 and infinity");
}

}  // namespace dtensor
