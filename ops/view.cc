#include "dtensor/ops/view.h"

#include <string>
#include <utility>
#include <variant>

#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/policy.h"
#include "dtensor/ops/view_layout.h"
#include "dtensor/placement/apply_rule.h"
#include "dtensor/placement/reshard_plan.h"
#include "dtensor/tensor/kernels.h"

namespace dtensor {
namespace {

// `a` moved to the cheapest fix, or an error that shows it, by the policy.
DTensor move_or_refuse(const std::string& op, const DTensor& a, const RuleMismatch& mismatch,
                       std::span<const Fix> fixes, CallSite site) {
  if (Context::current().slot<CurrentPolicy>().policy == RedistributePolicy::kAuto &&
      !fixes.empty()) {
    return ops::move_for_op(a, fixes.front().in.front(), ops::MoveReason::kAutomatic, op, site);
  }
  const Rule rule{.op = op, .letters = {}};
  const DType dtype = a.dtype();
  throw PlacementError(
      no_row_text(rule, {&a.layout(), 1}, mismatch, fixes, {.dtypes = {&dtype, 1}}));
}

// g in a tensor of zeros that is `size` long on `dim`.
DTensor widen(const DTensor& g, int dim, int64_t begin, int64_t size) {
  Shape shape = g.shape();
  shape[dim] = size;
  const Layout out(g.spec(), shape);
  const auto kernel = [&](const Tensor& local, const Shape& local_shape) {
    const Tensor y = Tensor::zeros(local_shape, local.dtype());
    kernels::copy(local, y.narrow(dim, begin, local.size(dim)));
    return y;
  };
  return ops::run_placed({.op = "narrow_backward", .out = out, .kernel = kernel}, g);
}

}  // namespace

DTensor transpose(const DTensor& a, int d0, int d1, CallSite site) {
  ops::check_same_dtype("transpose", {a});
  const int x = normalize_dim(d0, a.ndim(), "transpose");
  const int y = normalize_dim(d1, a.ndim(), "transpose");
  const std::string from = ops::letters_of(a.ndim());
  std::string to = from;
  std::swap(to[static_cast<size_t>(x)], to[static_cast<size_t>(y)]);
  const Rule rule{.op = "transpose", .letters = from + "->" + to, .linear = {{0}}};
  const ops::Kernel kernel = [x, y](const ops::KernelInfo&, std::span<const Tensor> in) {
    return std::vector<Tensor>{in[0].transpose(x, y)};
  };
  const auto backward = [x, y](std::span<const DTensor>, std::span<const DTensor>) -> BackwardFn {
    return
        [x, y](std::span<const DTensor> g) { return std::vector<DTensor>{transpose(g[0], x, y)}; };
  };
  return ops::run1({.rule = rule, .kernel = kernel, .backward = backward, .site = site}, {a});
}

DTensor reshape(const DTensor& a, const Shape& shape, CallSite site) {
  ops::check_same_dtype("reshape", {a});
  const Shape to = ops::infer_shape(a.shape(), shape);
  if (to == a.shape()) return a;
  DTensor placed = a;
  Layout out;
  if (!a.mesh().defined()) {
    out = Layout::replicated(MeshLayout(), to);
  } else {
    auto found = ops::reshape_layout(a.layout(), to);
    if (const auto* mismatch = std::get_if<RuleMismatch>(&found)) {
      placed = move_or_refuse("reshape to " + to_string(to), a, *mismatch,
                              ops::reshape_fixes(a.layout(), to, a.dtype()), site);
      found = ops::reshape_layout(placed.layout(), to);
    }
    out = std::get<Layout>(std::move(found));
  }
  const auto kernel = [](const Tensor& local, const Shape& local_shape) {
    return local.reshape(local_shape);
  };
  return ops::run_placed(
      {.op = "reshape",
       .out = out,
       .kernel = kernel,
       .backward = [from = a.shape()](const DTensor& g) { return reshape(g, from); },
       .site = site},
      placed);
}

DTensor narrow(const DTensor& a, int dim, int64_t begin, int64_t length, CallSite site) {
  ops::check_same_dtype("narrow", {a});
  const int d = normalize_dim(dim, a.ndim(), "narrow");
  if (begin < 0 || length < 0 || begin > a.size(d) - length) {
    throw ArgumentError("narrow: [" + std::to_string(begin) + ", " +
                        std::to_string(begin + length) + ") of dim " + std::to_string(d) + " of " +
                        to_string(a.shape()));
  }
  DTensor placed = a;
  if (const auto levels = a.spec().levels(d); !levels.empty()) {
    Layout whole = a.layout();
    for (const Level& level : levels) whole = whole.with(level.mesh_dim, Replicate());
    const ReshardPlan moves = plan(a.layout(), whole);
    Shape shape = a.shape();
    shape[d] = length;
    const Fix fix{.in = {whole},
                  .out = {Layout(whole.spec(), shape)},
                  .each = {moves.most_received() * size_of(a.dtype())},
                  .received_bytes = moves.most_received() * size_of(a.dtype()),
                  .payload_elements = moves.payload(),
                  .moved = 1};
    const RuleMismatch mismatch{levels.front().mesh_dim,
                                "dim " + std::to_string(d) + " may not be cut"};
    placed = move_or_refuse("narrow", a, mismatch, {&fix, 1}, site);
  }
  Shape shape = a.shape();
  shape[d] = length;
  const Layout out(placed.spec(), shape);
  const auto kernel = [=](const Tensor& local, const Shape&) {
    return local.narrow(d, begin, length);
  };
  return ops::run_placed({.op = "narrow",
                          .out = out,
                          .kernel = kernel,
                          .backward = [d, begin, size = a.size(d)](
                                          const DTensor& g) { return widen(g, d, begin, size); },
                          .site = site},
                         placed);
}

}  // namespace dtensor
