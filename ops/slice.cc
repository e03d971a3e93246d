#include "dtensor/ops/slice.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "dtensor/ops/irregular.h"
#include "dtensor/ops/local_select.h"
#include "dtensor/ops/one_input.h"
#include "dtensor/ops/slice_layout.h"
#include "dtensor/tensor/kernels.h"

namespace dtensor {
namespace {

using ops::Slice;

// What this rank holds of a tensor's dim.
Range held_of(const DTensor& a, int dim) {
  const auto& at = a.mesh().coordinate();
  return a.mesh().defined() && at ? a.layout().range(dim, *at) : Range{0, a.size(dim)};
}

// The elements of the slice among those of `held`, which `local` has.
Tensor piece_of(const Tensor& local, const Slice& s, Range held) {
  const Range taken = ops::taken_of(s, held);
  if (taken.empty()) return local.narrow(s.dim, 0, 0);
  const int64_t first = s.begin + taken.begin * s.step - held.begin;
  const Tensor run = local.narrow(s.dim, first, (taken.size() - 1) * s.step + 1);
  if (s.step == 1) return run;
  Shape shape = run.shape();
  Shape strides = run.strides();
  shape[s.dim] = taken.size();
  strides[s.dim] *= s.step;
  return run.as_strided(shape, strides, run.offset());
}

DTensor take(std::string_view op, const DTensor& a, const Slice& s, CallSite site);

// g in a tensor of zeros that lies along the dim as `from`, the operand of the slice, did.
DTensor widen(const DTensor& g, const Slice& s, const Layout& from) {
  std::vector<std::vector<Level>> levels;
  Shape shape = g.shape();
  shape[s.dim] = from.shape()[s.dim];
  for (int d = 0; d < g.ndim(); ++d) {
    const bool cut = d == s.dim && !g.spec().levels(d).empty();
    const auto own = cut ? from.spec().levels(d) : g.spec().levels(d);
    levels.emplace_back(own.begin(), own.end());
  }
  std::vector<Placement> partial;
  for (const Placement p : g.spec().placements()) {
    partial.push_back(p.is_partial() ? p : Replicate());
  }
  const Layout out(Spec::from_levels(g.layout().mesh(), levels, partial), shape);
  const auto& at = g.mesh().coordinate();
  const Range held = g.mesh().defined() && at ? out.range(s.dim, *at) : Range{0, shape[s.dim]};
  const auto kernel = [&](const Tensor& local, const Shape& local_shape) {
    const Tensor y = Tensor::zeros(local_shape, local.dtype());
    kernels::copy(local, piece_of(y, s, held));
    return y;
  };
  return ops::run_placed({.op = "slice_backward",
                          .out = out,
                          .kernel = kernel,
                          .backward = [s](const DTensor& up) { return take("slice", up, s, {}); },
                          .twice = true},
                         g);
}

DTensor take(std::string_view op, const DTensor& a, const Slice& s, CallSite site) {
  DTensor placed = a;
  Layout out;
  if (!a.mesh().defined()) {
    Shape shape = a.shape();
    shape[s.dim] = s.length;
    out = Layout::replicated(MeshLayout(), shape);
  } else {
    auto found = ops::slice_layout(a.layout(), s);
    if (const auto* mismatch = std::get_if<RuleMismatch>(&found)) {
      const Rule rule = ops::slice_rule(op, a.shape(), s);
      const DType dtype = a.dtype();
      placed = ops::move_or_refuse(rule, a, *mismatch,
                                   fixes(rule, {&a.layout(), 1}, {.dtypes = {&dtype, 1}}), site);
      found = ops::slice_layout(placed.layout(), s);
    }
    out = std::get<Layout>(std::move(found));
  }
  const Range held = held_of(placed, s.dim);
  const auto kernel = [&](const Tensor& local, const Shape&) { return piece_of(local, s, held); };
  return ops::run_placed(
      {.op = op,
       .out = out,
       .kernel = kernel,
       .backward = [s, from = placed.layout()](const DTensor& g) { return widen(g, s, from); },
       .site = site,
       .twice = true},
      placed);
}

}  // namespace

DTensor narrow(const DTensor& a, int dim, int64_t begin, int64_t length, CallSite site) {
  ops::check_same_dtype("narrow", {a});
  const int d = normalize_dim(dim, a.ndim(), "narrow");
  if (begin < 0 || length < 0 || begin > a.size(d) - length) {
    throw ArgumentError("narrow: " + std::to_string(length) + " from " + std::to_string(begin) +
                        " on of dim " + std::to_string(d) + " of " + to_string(a.shape()));
  }
  return take("narrow", a, {d, begin, length, 1}, site);
}

DTensor slice(const DTensor& a, int dim, const SliceOptions& options, CallSite site) {
  ops::check_same_dtype("slice", {a});
  const int d = normalize_dim(dim, a.ndim(), "slice");
  if (options.step < 1) {
    throw ArgumentError("slice: step " + std::to_string(options.step) +
                        "; give 1 or more, and flip() for the other direction");
  }
  const int64_t size = a.size(d);
  const auto bound = [size](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size);
  };
  const int64_t begin = bound(options.begin);
  const int64_t end = std::max(begin, bound(options.end));
  // A step beyond the dim takes one element, as one of its size does.
  const int64_t step = std::min(options.step, std::max<int64_t>(1, size));
  return take("slice", a, {d, begin, (end - begin + step - 1) / step, step}, site);
}

DTensor select(const DTensor& a, int dim, int64_t index, CallSite site) {
  ops::check_same_dtype("select", {a});
  const int d = normalize_dim(dim, a.ndim(), "select");
  const int64_t size = a.size(d);
  if (index < -size || index >= size) {
    throw ArgumentError("select: " + std::to_string(index) + " of dim " + std::to_string(d) +
                        " of " + to_string(a.shape()));
  }
  const int64_t at = index < 0 ? index + size : index;
  const std::string from = ops::letters_of(a.ndim());
  const std::string to = ops::letters_with(a.ndim(), d, '\0');
  const std::string letter(1, from[static_cast<size_t>(d)]);
  const Rule rule{.op = "select", .letters = from + "->" + to, .uncut = letter, .linear = {{0}}};
  const Rule back{.op = "select_backward",
                  .letters = to + "->" + from,
                  .made = {{letter[0], size}},
                  .linear = {{0}}};
  const auto take_one = [d, at](const ops::KernelInfo&, const Tensor& x) {
    return ops::local_select(x, d, at);
  };
  const auto adjoint = [back, d, at, size](const DTensor& g) {
    const auto widened = [&](const ops::KernelInfo&, const Tensor& x) {
      const Tensor y = Tensor::zeros(ops::with_dim(x.shape(), d, size), x.dtype());
      kernels::copy(x, ops::local_select(y, d, at));
      return y;
    };
    return ops::run_one(
        back, g, widened, [d, at](const DTensor& up) { return select(up, d, at); }, CallSite{});
  };
  return ops::run_one(rule, a, take_one, adjoint, site);
}

}  // namespace dtensor
