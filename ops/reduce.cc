#include "dtensor/ops/reduce.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/ops/cpu/along_dims.h"
#include "dtensor/ops/cpu/binary.h"
#include "dtensor/ops/cpu/reduce.h"
#include "dtensor/ops/cpu/unary.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/reduction.h"

namespace dtensor {
namespace {

using ops::Reduction;

// ---- sum and mean
// The adjoint of a sum: g repeated over the reduced dims, or of a mean: over their count. `like`
// brings their sizes and cuts.
DTensor spread(const Reduction& r, const DTensor& g, const DTensor& like, double count) {
  Rule rule = r.gradient("spread");
  rule.names = {"g", "like"};
  const ops::Kernel kernel = [&r, count](const ops::KernelInfo&, ops::Pieces in) {
    const Tensor part = count == 1.0 ? in[0] : cpu::binary(cpu::BinaryOp::kDiv, in[0], count);
    return ops::Tensors{ops::expand_back(part, r, in[1].shape()).clone()};
  };
  const auto backward = [&](std::span<const DTensor>, std::span<const DTensor>) -> BackwardFn {
    return [r, count](std::span<const DTensor> up) {
      // A scalar was not summed; a mean of one element is the sum.
      if (r.dims.empty()) return Grads{up[0], DTensor()};
      const KeepDims keep = r.out == r.kept ? KeepDims::kNo : KeepDims::kYes;
      return Grads{count == 1.0 ? sum(up[0], r.dims, keep) : mean(up[0], r.dims, keep), DTensor()};
    };
  };
  return ops::run1({.rule = rule, .kernel = kernel, .backward = backward, .twice = true},
                   {g, like});
}

// Of 16-bit types in f32, rounded once.
Tensor mean_of(const Tensor& x, const Reduction& r, double count) {
  const bool wide = is_floating(x.dtype()) && size_of(x.dtype()) == 2;
  const Tensor total = cpu::sum(wide ? x.to(DType::kFloat32) : x, r.dims);
  return cpu::binary(cpu::BinaryOp::kDiv, total, count).to(x.dtype());
}

DTensor run_sum(std::string_view op, const DTensor& a, const Reduction& r, bool divide,
                CallSite site) {
  const double count = divide ? static_cast<double>(r.count) : 1.0;
  Rule rule = r.rule(op);
  rule.linear = {{0}};
  const ops::Kernel kernel = [&](const ops::KernelInfo&, ops::Pieces in) {
    const Tensor y = divide ? mean_of(in[0], r, count) : cpu::sum(in[0], r.dims);
    return ops::Tensors{ops::finished(y, r, in[0].shape())};
  };
  const auto backward = [&](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    return [r, count, like = ops::shape_operand(in[0])](std::span<const DTensor> g) {
      return Grads{spread(r, g[0], like, count)};
    };
  };
  return ops::run1(
      {.rule = rule, .kernel = kernel, .backward = backward, .site = site, .twice = true}, {a});
}

// ---- Extremes and products
void refuse_partial_gradient(const DTensor& y) {
  if (!y.spec().has_partial()) return;
  throw PlacementError("the gradient of " + to_string(Partial(y.spec().partial_op())) +
                       ": a rank does not know what the others hold; redistribute the operand "
                       "so that the reduced dims are not cut");
}

// g to the elements of x that equal y, in equal parts; to the NaN where y is NaN. In f32 for 16-bit
// types.
Tensor select_extreme(const Tensor& g, const Tensor& x, const Tensor& y, const Reduction& r) {
  const bool narrow = size_of(x.dtype()) == 2;
  const DType dtype = narrow ? DType::kFloat32 : x.dtype();
  const Tensor equal = cpu::binary(cpu::BinaryOp::kEq, x, ops::expand_back(y, r, x.shape()));
  const Tensor hit =
      cpu::binary(cpu::BinaryOp::kOr, equal, cpu::unary(cpu::UnaryOp::kIsNan, x)).to(dtype);
  const Tensor share = cpu::binary(cpu::BinaryOp::kDiv, g.to(dtype).reshape(y.shape()),
                                   cpu::sum(hit, r.dims).reshape(y.shape()));
  return cpu::where(hit, ops::expand_back(share, r, x.shape()), Tensor::zeros({}, dtype))
      .to(x.dtype());
}

DTensor extreme_gradient(const Reduction& r, const DTensor& g, const DTensor& x, const DTensor& y);

// The adjoint of that, which is linear in g: the mean of up over the elements of x that equal y.
DTensor mean_of_extremes(const Reduction& r, const DTensor& up, const DTensor& x,
                         const DTensor& y) {
  Rule rule{.op = "extreme_mean",
            .letters = r.all + "," + r.all + "," + r.out + "->" + r.out,
            .uncut = r.reduced,
            .linear = {{0}},
            .names = {"g", "x", "y"}};
  for (const MadeLetter& m : r.made) rule.uncut += m.letter;
  const ops::Kernel kernel = [&r](const ops::KernelInfo&, ops::Pieces in) {
    const Tensor shares =
        select_extreme(Tensor::full(in[2].shape(), 1.0, in[2].dtype()), in[1], in[2], r);
    return ops::Tensors{ops::finished(cpu::sum(cpu::mul(in[0], shares), r.dims), r, in[1].shape())};
  };
  const auto backward = [&](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    return
        [r, x = Saved(in[1], "extreme"), y = Saved(in[2], "extreme")](std::span<const DTensor> g) {
          return Grads{extreme_gradient(r, g[0], x.value(), y.value()), DTensor(), DTensor()};
        };
  };
  return ops::run1({.rule = rule, .kernel = kernel, .backward = backward, .twice = true},
                   {up, x, y});
}

DTensor extreme_gradient(const Reduction& r, const DTensor& g, const DTensor& x, const DTensor& y) {
  refuse_partial_gradient(y);
  Rule rule = r.gradient("extreme_backward", {"y"});
  rule.uncut += r.reduced;
  const ops::Kernel kernel = [&r](const ops::KernelInfo&, ops::Pieces in) {
    return ops::Tensors{select_extreme(in[0], in[1], in[2], r)};
  };
  const auto backward = [&](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    return
        [r, x = Saved(in[1], "extreme"), y = Saved(in[2], "extreme")](std::span<const DTensor> up) {
          return Grads{mean_of_extremes(r, up[0], x.value(), y.value()), DTensor(), DTensor()};
        };
  };
  return ops::run1({.rule = rule, .kernel = kernel, .backward = backward, .twice = true},
                   {g, x, y});
}

// g times the product of the other elements: of those before times those after, so that zeros need
// no case of their own.
DTensor prod_gradient(const Reduction& r, const DTensor& g, const DTensor& x, const DTensor& y) {
  refuse_partial_gradient(y);
  Rule rule = r.gradient("prod_backward");
  rule.uncut += r.reduced;
  const ops::Kernel kernel = [&r](const ops::KernelInfo&, ops::Pieces in) {
    const Tensor others = cpu::products_of_others(in[1], r.dims);
    return ops::Tensors{cpu::mul(others, ops::expand_back(in[0], r, in[1].shape()))};
  };
  return ops::run1({.rule = rule, .kernel = kernel}, {g, x});
}

using Local = Tensor (*)(const Tensor&, std::span<const int>, cpu::KeepDims);
using Gradient = DTensor (*)(const Reduction&, const DTensor& g, const DTensor& x,
                             const DTensor& y);

struct Choice {
  std::string_view op;
  Local local;
  PartialOp reduce;
  Gradient gradient = nullptr;
  std::optional<DType> dtype = {};
};

DTensor run_choice(const Choice& c, const DTensor& a, const Reduction& r, CallSite site) {
  Rule rule = r.rule(c.op);
  rule.reduce = c.reduce;
  const ops::Kernel kernel = [&](const ops::KernelInfo&, ops::Pieces in) {
    return ops::Tensors{
        ops::finished(c.local(in[0], r.dims, cpu::KeepDims::kNo), r, in[0].shape())};
  };
  ops::MakeBackward backward;
  if (c.gradient) {
    backward = [&](std::span<const DTensor> in, std::span<const DTensor> out) -> BackwardFn {
      return [r, f = c.gradient, x = Saved(in[0], c.op), y = Saved(out[0].detach(), c.op)](
                 std::span<const DTensor> g) { return Grads{f(r, g[0], x.value(), y.value())}; };
    };
  }
  return ops::run1({.rule = rule,
                    .kernel = kernel,
                    .backward = backward,
                    .dtype = c.dtype,
                    .site = site,
                    .twice = true},
                   {a});
}

// ---- Of what is not 0
Tensor count_local(const Tensor& x, std::span<const int> dims, cpu::KeepDims keep) {
  return cpu::sum(cpu::binary(cpu::BinaryOp::kNe, x, 0.0).to(DType::kInt64), dims, keep);
}
Tensor any_local(const Tensor& x, std::span<const int> dims, cpu::KeepDims keep) {
  return cpu::binary(cpu::BinaryOp::kGt, count_local(x, dims, keep), 0.0);
}
Tensor all_local(const Tensor& x, std::span<const int> dims, cpu::KeepDims keep) {
  return cpu::unary(cpu::UnaryOp::kLogicalNot,
                    any_local(cpu::unary(cpu::UnaryOp::kLogicalNot, x), dims, keep));
}

}  // namespace

DTensor sum(const DTensor& a, const Dims& dims, KeepDims keep, CallSite site) {
  return run_sum("sum", a, ops::reduction_of("sum", a, dims, keep), false, site);
}

DTensor mean(const DTensor& a, const Dims& dims, KeepDims keep, CallSite site) {
  ops::check_floating("mean", a);
  return run_sum("mean", a, ops::reduction_of("mean", a, dims, keep), true, site);
}

DTensor amax(const DTensor& a, const Dims& dims, KeepDims keep, CallSite site) {
  return run_choice({"amax", cpu::amax, PartialOp::kMax, extreme_gradient}, a,
                    ops::reduction_of("amax", a, dims, keep), site);
}

DTensor amin(const DTensor& a, const Dims& dims, KeepDims keep, CallSite site) {
  return run_choice({"amin", cpu::amin, PartialOp::kMin, extreme_gradient}, a,
                    ops::reduction_of("amin", a, dims, keep), site);
}

DTensor prod(const DTensor& a, const Dims& dims, KeepDims keep, CallSite site) {
  return run_choice({"prod", cpu::prod, PartialOp::kProd, prod_gradient}, a,
                    ops::reduction_of("prod", a, dims, keep), site);
}

DTensor any(const DTensor& a, const Dims& dims, KeepDims keep, CallSite site) {
  return run_choice({"any", any_local, PartialOp::kMax, nullptr, DType::kBool}, a,
                    ops::reduction_of("any", a, dims, keep), site);
}

DTensor all(const DTensor& a, const Dims& dims, KeepDims keep, CallSite site) {
  return run_choice({"all", all_local, PartialOp::kMin, nullptr, DType::kBool}, a,
                    ops::reduction_of("all", a, dims, keep), site);
}

DTensor count_nonzero(const DTensor& a, const Dims& dims, KeepDims keep, CallSite site) {
  return run_choice({"count_nonzero", count_local, PartialOp::kSum, nullptr, DType::kInt64}, a,
                    ops::reduction_of("count_nonzero", a, dims, keep), site);
}

}  // namespace dtensor
