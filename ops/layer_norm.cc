#include "dtensor/ops/layer_norm.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "dtensor/ops/binary.h"
#include "dtensor/ops/cast.h"
#include "dtensor/ops/cpu/binary.h"
#include "dtensor/ops/cpu/half.h"
#include "dtensor/ops/cpu/layer_norm.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/irregular.h"
#include "dtensor/ops/rank_reduction.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/twice.h"
#include "dtensor/ops/unary.h"
#include "dtensor/ops/view.h"
#include "dtensor/ops/view_layout.h"
#include "dtensor/placement/reshard_plan.h"

namespace dtensor {
namespace {

// What forward leaves for backward, of this rank's piece.
struct State {
  std::string l;  // letters of the rows
  int64_t n = 0;  // global length of a row
  double eps = 0.0;
  bool cut = false;
  cpu::RowStats stats;
};

struct Wants {
  bool x = false;
  bool w = false;
  bool b = false;
};

struct WeightDTypes {
  DType w;
  DType b;
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

cpu::RowStats stats_of(const Tensor& x, const DTensor& whole, const std::string& l, double eps,
                       const MoveOptions& asked) {
  if (whole.spec().levels(whole.ndim() - 1).empty()) return cpu::row_stats(x, eps);
  const int64_t n = whole.size(-1);
  const ops::RankReduction over{l + "h->" + l, PartialOp::kSum, asked};
  cpu::RowStats stats;
  stats.mean =
      cpu::binary(cpu::BinaryOp::kDiv, ops::reduce_over_ranks(cpu::row_sums(x), whole, over),
                  static_cast<double>(n));
  stats.inverse = cpu::inverse_root(
      ops::reduce_over_ranks(cpu::row_squares(x, stats.mean), whole, over), n, eps);
  return stats;
}

DTensor gradient_of_x(const State& state, const DTensor& g, const DTensor& x, const DTensor& w) {
  const std::string& l = state.l;
  const bool weighted = w.defined();
  const Rule rule = norm_rule(
      "layer_norm_dx", l + "h," + l + (weighted ? "h,h->" : "h->") + l + "h",
      weighted ? std::vector<std::vector<int>>{{0}, {2}} : std::vector<std::vector<int>>{{0}},
      {"g", "x", "w"});
  const ops::Kernel kernel = [&](const ops::KernelInfo& info, ops::Pieces in) {
    const Tensor mine_g = cpu::f16_as_f32(in[0]).to(cpu::f16_as_f32(in[1]).dtype());
    const Tensor mine_x = cpu::f16_as_f32(in[1]);
    const Tensor weight = weighted ? in[2] : Tensor();
    cpu::RowSums sums = cpu::layer_norm_sums(mine_g, mine_x, state.stats, weight);
    if (state.cut) {
      const MoveOptions asked{.op = "layer_norm", .cause = Cause::kAdjoint, .of = "layer_norm"};
      const std::vector<Tensor> whole = ops::reduce_over_ranks(
          {sums.v, sums.vu}, info.input(1), {l + "h->" + l, PartialOp::kSum, asked});
      sums = {whole[0], whole[1]};
    }
    const Tensor dx = cpu::layer_norm_dx(mine_g, mine_x, state.stats, weight, sums, state.n);
    return ops::Tensors{dx.to(in[1].dtype())};
  };
  const ops::OpCall call{
      .rule = rule, .kernel = kernel, .allow_communicating = true, .dtype = x.dtype()};
  return weighted ? ops::run1(call, {g, x, w}) : ops::run1(call, {g, x});
}

// dw and db: both are linear in g, and nothing is sent.
std::vector<DTensor> gradients_of_weights(const State& state, const DTensor& g, const DTensor& x,
                                          WeightDTypes dtypes) {
  const std::string& l = state.l;
  const Rule rule{.op = "layer_norm_dw",
                  .letters = l + "h," + l + "h->h,h",
                  .linear = {{0}},
                  .names = {"g", "x"}};
  const ops::Kernel kernel = [&](const ops::KernelInfo&, ops::Pieces in) {
    const Tensor mine_x = cpu::f16_as_f32(in[1]);
    const cpu::LayerNormGrads grads =
        cpu::layer_norm_dw(cpu::f16_as_f32(in[0]).to(mine_x.dtype()), mine_x, state.stats);
    return ops::Tensors{grads.dw.to(dtypes.w), grads.db.to(dtypes.b)};
  };
  return ops::run({.rule = rule, .kernel = kernel, .dtype = dtypes.w, .second_dtype = dtypes.b},
                  Grads{g, x});
}

// All gradients, made of ops. With u = (x - mean(x)) / sqrt(var(x) + eps) and v = g w:
// dx = (v - mean(v) - u mean(v u)) / sqrt(var(x) + eps), dw = sum(g u), db = sum(g).
std::vector<DTensor> gradients_of_ops(const State& state, const Wants& wants, const DTensor& of_y,
                                      const DTensor& of_x, const DTensor& of_w,
                                      WeightDTypes dtypes) {
  const int last = of_x.ndim() - 1;
  ops::check_uncut("layer_norm", of_x, {last});
  const DType dtype = ops::computed_together({of_x.dtype(), dtypes.w, dtypes.b});
  const DTensor g = cast(of_y, dtype);
  const DTensor x = cast(of_x, dtype);
  const DTensor w = of_w.defined() ? cast(of_w, dtype) : of_w;
  const auto mean_of = [last](const DTensor& t) { return mean(t, {last}, KeepDims::kYes); };
  const DTensor distance = sub(x, mean_of(x));
  const DTensor inverse = rsqrt(add(mean_of(square(distance)), state.eps));
  const DTensor u = mul(distance, inverse);
  std::vector<DTensor> grads(3);
  if (wants.x) {
    const DTensor v = w.defined() ? mul(g, w) : g;
    const DTensor dx = mul(sub(sub(v, mean_of(v)), mul(u, mean_of(mul(v, u)))), inverse);
    grads[0] = cast(dx, of_x.dtype());
  }
  if (wants.w) grads[1] = cast(sum_to(mul(g, u), w.shape()), dtypes.w);
  if (wants.b) grads[2] = cast(sum_to(g, w.shape()), dtypes.b);
  return grads;
}

BackwardFn backward_of(const std::shared_ptr<State>& state, std::span<const DTensor> in) {
  state->cut = !in[0].spec().levels(in[0].ndim() - 1).empty();
  const bool has_w = in.size() > 1;
  const Wants wants{in[0].requires_grad(), has_w && in[1].requires_grad(),
                    in.size() > 2 && in[2].requires_grad()};
  return [state, wants, inputs = in.size(), x = Saved(in[0], "layer_norm"),
          w = has_w ? Saved(in[1], "layer_norm") : Saved(),
          dtypes = WeightDTypes{(has_w ? in[1] : in[0]).dtype(), in.back().dtype()}](
             std::span<const DTensor> g) {
    std::vector<DTensor> grads(inputs);
    const DTensor weight = inputs > 1 ? w.value() : DTensor();
    if (grad_enabled()) {
      grads = gradients_of_ops(*state, wants, g[0], x.value(), weight, dtypes);
      grads.resize(inputs);
      return grads;
    }
    if (wants.x) grads[0] = gradient_of_x(*state, g[0], x.value(), weight);
    if (!wants.w && !wants.b) return grads;
    const std::vector<DTensor> both = gradients_of_weights(*state, g[0], x.value(), dtypes);
    if (wants.w) grads[1] = both[0];
    if (wants.b) grads[2] = both[1];
    return grads;
  };
}

DTensor run(const std::vector<DTensor>& inputs, const LayerNormOptions& options, CallSite site) {
  const DTensor& x = inputs[0];
  for (const DTensor& t : inputs) ops::check_floating("layer_norm", t);
  if (x.ndim() < 1) throw ArgumentError("layer_norm takes x [...,h], got a scalar");
  const std::string l = ops::letters_of(x.ndim() - 1, 'i');
  std::string letters = l + "h";
  std::vector<int> weights;
  for (size_t i = 1; i < inputs.size(); ++i) {
    letters += ",h";
    weights.push_back(static_cast<int>(i));
  }
  std::vector<std::vector<int>> linear;
  if (!weights.empty()) linear.push_back(weights);
  const Rule rule = norm_rule("layer_norm", letters + "->" + l + "h", linear, {"x", "w", "b"});

  const auto state = std::make_shared<State>();
  state->l = l;
  state->n = x.size(-1);
  state->eps = options.eps;
  const ops::Kernel kernel = [&](const ops::KernelInfo& info, ops::Pieces in) {
    const Tensor mine = cpu::f16_as_f32(in[0]);
    const DTensor& whole = info.input(0);
    state->cut = !whole.spec().levels(whole.ndim() - 1).empty();
    state->stats = stats_of(mine, whole, l, options.eps, {.op = "layer_norm", .site = site});
    const Tensor y = cpu::layer_norm(mine, state->stats, in.size() > 1 ? in[1] : Tensor(),
                                     in.size() > 2 ? in[2] : Tensor());
    return ops::Tensors{y.to(in[0].dtype())};
  };
  const auto backward = [&](std::span<const DTensor> in, std::span<const DTensor>) {
    return backward_of(state, in);
  };
  return ops::run({.rule = rule,
                   .kernel = kernel,
                   .backward = backward,
                   .allow_communicating = options.sharded_dims,
                   .site = site,
                   .twice = true},
                  inputs)
      .front();
}

// Of group_norm: x [n,c,...] as rows [n,groups,h], one a group, that no rank has a part of.
std::variant<Layout, RuleMismatch> rows_of_groups(const Layout& x, const Shape& grouped) {
  for (int m = 0; m < x.mesh().ndim(); ++m) {
    if (x.placement(m).is_partial()) return RuleMismatch{m, "it is not linear in x"};
  }
  auto found = ops::reshape_layout(x, grouped);
  const auto* rows = std::get_if<Layout>(&found);
  if (rows == nullptr || rows->spec().levels(2).empty()) return found;
  return RuleMismatch{rows->spec().levels(2).front().mesh_dim, "that would cut a group"};
}

// What is neither R nor cut by samples goes to R, or there, or is cut between groups.
std::vector<Fix> group_fixes(const Layout& from, const Shape& grouped, DType dtype) {
  Layout whole = from;
  std::vector<int> changed;
  for (int m = 0; m < from.mesh().ndim(); ++m) {
    const Placement p = from.placement(m);
    if (p.is_replicate() || p == Shard(0)) continue;
    whole = whole.with(m, Replicate());
    changed.push_back(m);
  }
  std::vector<std::pair<Layout, int>> candidates = {{whole, 0}};
  for (const int m : changed) {
    const int new_cuts = from.placement(m).is_partial() ? 1 : 0;
    candidates.emplace_back(whole.with(m, Shard(0)), new_cuts);
    if (grouped[1] == 1) continue;
    candidates.emplace_back(whole.with(m, Shard(1), from.shape()[1] / grouped[1]), new_cuts);
  }
  std::vector<Fix> fixes;
  for (const auto& [to, new_cuts] : candidates) {
    auto out = rows_of_groups(to, grouped);
    if (to == from || !std::holds_alternative<Layout>(out)) continue;
    const ReshardPlan moves = plan(from, to);
    const int64_t bytes = moves.most_received() * size_of(dtype);
    fixes.push_back({.in = {to},
                     .out = {to},
                     .each = {bytes},
                     .received_bytes = bytes,
                     .payload_elements = moves.payload(),
                     .moved = 1,
                     .new_cuts = new_cuts});
  }
  std::ranges::stable_sort(fixes, {}, &Fix::received_bytes);
  return fixes;
}

// x where a rank has whole groups: as it is, moved, or refused, by the policy.
DTensor with_whole_groups(const DTensor& x, const Shape& grouped, CallSite site) {
  if (!x.mesh().defined()) return x;
  const auto found = rows_of_groups(x.layout(), grouped);
  const auto* mismatch = std::get_if<RuleMismatch>(&found);
  if (mismatch == nullptr) return x;
  const Rule rule{.op = "group_norm", .letters = {}, .names = {"x"}};
  return ops::move_or_refuse(rule, x, *mismatch, group_fixes(x.layout(), grouped, x.dtype()), site);
}

}  // namespace

DTensor layer_norm(const DTensor& x, const DTensor& w, const DTensor& b,
                   const LayerNormOptions& options, CallSite site) {
  std::vector<DTensor> inputs = {x};
  if (w.defined()) inputs.push_back(w);
  if (b.defined()) {
    if (!w.defined()) throw ArgumentError("layer_norm: b without w");
    inputs.push_back(b);
  }
  return run(inputs, options, site);
}
DTensor layer_norm(const DTensor& x, const LayerNormOptions& options, CallSite site) {
  return run({x}, options, site);
}

DTensor group_norm(const DTensor& x, const DTensor& w, const DTensor& b,
                   const GroupNormOptions& options, CallSite site) {
  ops::check_floating("group_norm", x);
  if (x.ndim() < 2 || options.groups < 1 || x.size(1) % options.groups != 0) {
    throw ArgumentError("group_norm takes x [n,c,...] with c a multiple of the groups, got " +
                        to_string(x.shape()) + " and " + std::to_string(options.groups));
  }
  int64_t behind = 1;
  Shape of_channels{x.size(1)};
  for (int d = 2; d < x.ndim(); ++d) {
    behind *= x.size(d);
    of_channels.push_back(1);
  }
  const Shape grouped{x.size(0), options.groups, x.size(1) / options.groups * behind};
  const DTensor placed = with_whole_groups(x, grouped, site);
  DTensor y = layer_norm(reshape(placed, grouped, site), {.eps = options.eps}, site);
  y = reshape(y, x.shape(), site);
  if (w.defined()) y = mul(y, reshape(w, of_channels, site), site);
  if (b.defined()) y = add(y, reshape(b, of_channels, site), site);
  return y;
}

}  // namespace dtensor
