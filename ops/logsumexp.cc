#include "dtensor/ops/logsumexp.h"

#include <string>
#include <vector>

#include "dtensor/ops/binary.h"
#include "dtensor/ops/cpu/binary.h"
#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/ops/cpu/reduce.h"
#include "dtensor/ops/cpu/unary.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/rank_reduction.h"
#include "dtensor/ops/reduction.h"
#include "dtensor/ops/twice.h"
#include "dtensor/ops/unary.h"

namespace dtensor {
namespace {

using ops::Reduction;

// g exp(x - y).
DTensor gradient(const Reduction& r, const DTensor& g, const DTensor& x, const DTensor& y) {
  if (grad_enabled()) {
    ops::check_uncut("logsumexp", x, r.dims);
    return mul(ops::spread_to(r, g, x), exp(sub(x, ops::spread_to(r, y, x))));
  }
  const Rule rule = r.gradient("logsumexp_backward", {"y"});
  const ops::Kernel kernel = [&](const ops::KernelInfo&, ops::Pieces in) {
    const Shape& shape = in[1].shape();
    const Tensor share = cpu::exp(cpu::sub(in[1], ops::expand_back(in[2], r, shape)));
    return ops::Tensors{cpu::mul(share, ops::expand_back(in[0], r, shape))};
  };
  return ops::run1({.rule = rule, .kernel = kernel}, {g, x, y});
}

}  // namespace

DTensor logsumexp(const DTensor& a, const Dims& dims, const LogSumExpOptions& options,
                  CallSite site) {
  ops::check_floating("logsumexp", a);
  const Reduction r = ops::reduction_of("logsumexp", a, dims, options.keep);
  Rule rule = r.rule("logsumexp");
  rule.communicating = r.reduced;
  rule.reduced = r.reduced;
  rule.ask = "{.sharded_dims = true}";
  const ops::Kernel kernel = [&](const ops::KernelInfo& info, ops::Pieces in) {
    const std::string letters = r.all + "->" + r.kept;
    const MoveOptions asked{.op = "logsumexp", .site = site};
    const Tensor x = in[0].to(cpu::accumulator_of(in[0].dtype()));
    const Tensor most = ops::reduce_over_ranks(cpu::amax(x, r.dims), info.input(0),
                                               {letters, PartialOp::kMax, asked});
    // An infinite maximum would be taken from itself.
    const Tensor from = cpu::where(cpu::unary(cpu::UnaryOp::kIsFinite, most), most,
                                   Tensor::zeros({}, most.dtype()));
    const Tensor part =
        cpu::sum(cpu::exp(cpu::sub(x, ops::expand_back(from, r, x.shape()))), r.dims);
    const Tensor total =
        ops::reduce_over_ranks(part, info.input(0), {letters, PartialOp::kSum, asked});
    const Tensor y = cpu::add(cpu::log(total), from).to(in[0].dtype());
    return ops::Tensors{ops::finished(y, r, x.shape())};
  };
  const auto backward = [&](std::span<const DTensor> in,
                            std::span<const DTensor> out) -> BackwardFn {
    return [r, x = Saved(in[0], "logsumexp"),
            y = Saved::output(out[0], "logsumexp")](std::span<const DTensor> g) {
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

}  // namespace dtensor
