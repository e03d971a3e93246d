#include "dtensor/ops/rms_norm.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/ops/binary.h"
#include "dtensor/ops/cast.h"
#include "dtensor/ops/cpu/half.h"
#include "dtensor/ops/cpu/layer_norm.h"
#include "dtensor/ops/cpu/norm.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/rank_reduction.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/twice.h"
#include "dtensor/ops/unary.h"
#include "dtensor/ops/view.h"

namespace dtensor {
namespace {

// What forward leaves for backward.
struct State {
  std::string l;  // letters of the rows
  double eps = 0.0;
  bool cut = false;     // h, on this call
  int64_t n = 0;        // global length of a row
  cpu::RowStats stats;  // of this rank's rows, where h is cut
};

Rule norm_rule(std::string op, std::string letters, std::vector<std::vector<int>> linear,
               std::vector<std::string_view> names) {
  return Rule{.op = std::move(op),
              .letters = std::move(letters),
              .linear = std::move(linear),
              .communicating = "h",
              .ask = "{.sharded_dims = true}",
              .names = std::move(names)};
}

struct Wants {
  bool dx = false;
  bool dw = false;
};

DTensor gradient_of_x(const State& s, const DTensor& g, const DTensor& x, const DTensor& w) {
  const std::string& l = s.l;
  const Rule rule =
      norm_rule("rms_norm_dx", l + "h," + l + "h,h->" + l + "h", {{0}, {2}}, {"g", "x", "w"});
  const ops::Kernel kernel = [&](const ops::KernelInfo& info, ops::Pieces in) {
    const Tensor mine_x = cpu::f16_as_f32(in[1]);
    const Tensor mine_g = cpu::f16_as_f32(in[0]);
    if (!s.cut) {
      return ops::Tensors{
          cpu::rms_norm_dx(mine_g, mine_x, cpu::f16_as_f32(in[2]), s.eps).to(in[1].dtype())};
    }
    const MoveOptions asked{.op = "rms_norm", .cause = Cause::kAdjoint, .of = "rms_norm"};
    cpu::RowSums sums = cpu::layer_norm_sums(mine_g, mine_x, s.stats, in[2]);
    sums.vu =
        ops::reduce_over_ranks(sums.vu, info.input(1), {l + "h->" + l, PartialOp::kSum, asked});
    return ops::Tensors{
        cpu::layer_norm_dx(mine_g, mine_x, s.stats, in[2], sums, s.n).to(in[1].dtype())};
  };
  return ops::run1({.rule = rule, .kernel = kernel, .allow_communicating = true}, {g, x, w});
}

// Nothing is sent, also where h is cut.
DTensor gradient_of_w(const State& s, const DTensor& g, const DTensor& x, DType dtype) {
  const Rule rule{.op = "rms_norm_dw",
                  .letters = s.l + "h," + s.l + "h->h",
                  .linear = {{0}},
                  .names = {"g", "x"}};
  const ops::Kernel kernel = [&](const ops::KernelInfo&, ops::Pieces in) {
    const Tensor mine_x = cpu::f16_as_f32(in[1]);
    const Tensor mine_g = cpu::f16_as_f32(in[0]);
    const Tensor dw = s.cut ? cpu::layer_norm_dw(mine_g, mine_x, s.stats).dw
                            : cpu::rms_norm_dw(mine_g, mine_x, s.eps);
    return ops::Tensors{dw.to(dtype)};
  };
  return ops::run1({.rule = rule, .kernel = kernel, .dtype = dtype}, {g, x});
}

// Both in one pass; only where w is not Partial, which would make dx Partial and dw not.
std::vector<DTensor> both_gradients(const State& s, const DTensor& g, const DTensor& x,
                                    const DTensor& w) {
  const std::string& l = s.l;
  Rule rule =
      norm_rule("rms_norm_backward", l + "h," + l + "h,h->" + l + "h,h", {{0}}, {"g", "x", "w"});
  std::swap(rule.uncut, rule.communicating);
  const ops::Kernel kernel = [&](const ops::KernelInfo&, ops::Pieces in) {
    const cpu::RmsNormGrads grads = cpu::rms_norm_backward(
        cpu::f16_as_f32(in[0]), cpu::f16_as_f32(in[1]), cpu::f16_as_f32(in[2]), s.eps);
    return ops::Tensors{grads.dx.to(in[1].dtype()), grads.dw.to(in[2].dtype())};
  };
  return ops::run({.rule = rule, .kernel = kernel, .dtype = x.dtype(), .second_dtype = w.dtype()},
                  Grads{g, x, w});
}

// Made of ops. With u = x / sqrt(mean(x^2) + eps) and v = g w:
// dx = (v - u mean(v u)) / sqrt(mean(x^2) + eps), dw = sum(g u).
std::vector<DTensor> gradients_of_ops(const State& s, Wants wants, const DTensor& of_y,
                                      const DTensor& of_x, const DTensor& of_w) {
  const int last = of_x.ndim() - 1;
  ops::check_uncut("rms_norm", of_x, {last});
  const DType dtype = ops::computed_together({of_x.dtype(), of_w.dtype()});
  const DTensor g = cast(of_y, dtype);
  const DTensor x = cast(of_x, dtype);
  const DTensor w = cast(of_w, dtype);
  const auto mean_of = [last](const DTensor& t) { return mean(t, {last}, KeepDims::kYes); };
  const DTensor inverse = rsqrt(add(mean_of(square(x)), s.eps));
  const DTensor u = mul(x, inverse);
  std::vector<DTensor> grads(2);
  if (wants.dx) {
    const DTensor v = mul(g, w);
    grads[0] = cast(mul(sub(v, mul(u, mean_of(mul(v, u)))), inverse), of_x.dtype());
  }
  if (wants.dw) grads[1] = cast(sum_to(mul(g, u), w.shape()), of_w.dtype());
  return grads;
}

std::vector<DTensor> gradients(const State& s, Wants wants, const DTensor& g, const DTensor& x,
                               const DTensor& w) {
  if (grad_enabled()) return gradients_of_ops(s, wants, g, x, w);
  if (wants.dx && wants.dw && !s.cut && !w.spec().has_partial()) return both_gradients(s, g, x, w);
  return {wants.dx ? gradient_of_x(s, g, x, w) : DTensor(),
          wants.dw ? gradient_of_w(s, g, x, w.dtype()) : DTensor()};
}

bool is_cut(const DTensor& x) { return !x.spec().levels(x.ndim() - 1).empty(); }

}  // namespace

DTensor rms_norm(const DTensor& x, const DTensor& w, const RmsNormOptions& options, CallSite site) {
  ops::check_floating("rms_norm", x);
  ops::check_floating("rms_norm", w);
  if (x.ndim() < 1) throw ArgumentError("rms_norm takes x [...,h], got a scalar");
  const auto state = std::make_shared<State>();
  state->l = ops::letters_of(x.ndim() - 1, 'i');
  state->eps = options.eps;
  state->n = x.size(-1);
  const std::string& l = state->l;
  const Rule rule = norm_rule("rms_norm", l + "h,h->" + l + "h", {{1}}, {"x", "w"});
  const ops::Kernel kernel = [&](const ops::KernelInfo& info, ops::Pieces in) {
    const Tensor mine = cpu::f16_as_f32(in[0]);
    if (!is_cut(info.input(0))) {
      return ops::Tensors{
          cpu::rms_norm(mine, cpu::f16_as_f32(in[1]), options.eps).to(in[0].dtype())};
    }
    const MoveOptions asked{.op = "rms_norm", .site = site};
    const Tensor squares = ops::reduce_over_ranks(cpu::row_squares(mine, {}), info.input(0),
                                                  {l + "h->" + l, PartialOp::kSum, asked});
    state->stats.inverse = cpu::inverse_root(squares, state->n, options.eps);
    return ops::Tensors{cpu::layer_norm(mine, state->stats, in[1], {}).to(in[0].dtype())};
  };
  const auto backward = [&](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    const Wants wants{in[0].requires_grad(), in[1].requires_grad()};
    state->cut = is_cut(in[0]);
    return [wants, state, x = Saved(in[0], "rms_norm"),
            w = Saved(in[1], "rms_norm")](std::span<const DTensor> g) {
      return gradients(*state, wants, g[0], x.value(), w.value());
    };
  };
  return ops::run1({.rule = rule,
                    .kernel = kernel,
                    .backward = backward,
                    .allow_communicating = options.sharded_dims,
                    .site = site,
                    .twice = true},
                   {x, w});
}

DTensor rms_norm(const DTensor& x, const DTensor& w, double eps, CallSite site) {
  return rms_norm(x, w, RmsNormOptions{.eps = eps}, site);
}

}  // namespace dtensor
