#include "dtensor/ops/reduce.h"

#include <algorithm>
#include <string>
#include <utility>

#include "dtensor/ops/cpu/elementwise.h"
#include "dtensor/ops/cpu/reduce.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/tensor/kernels.h"

namespace dtensor {
namespace {

struct Reduction {
  std::vector<int> dims;  // sorted, not empty but for a scalar
  std::string all;        // letters of the operand
  std::string kept;
  int64_t count = 1;  // global elements per result
};

Reduction reduction_of(std::string_view op, const DTensor& a, std::span<const int> dims) {
  ops::check_same_dtype(op, {a});
  Reduction r;
  for (const int d : dims) r.dims.push_back(normalize_dim(d, a.ndim(), op.data()));
  if (dims.empty()) {
    for (int d = 0; d < a.ndim(); ++d) r.dims.push_back(d);
  }
  std::ranges::sort(r.dims);
  if (std::ranges::adjacent_find(r.dims) != r.dims.end()) {
    throw ArgumentError(std::string(op) + ": a dim is given twice");
  }
  r.all = ops::letters_of(a.ndim());
  for (int d = 0; d < a.ndim(); ++d) {
    if (std::ranges::count(r.dims, d) > 0) {
      r.count *= a.size(d);
    } else {
      r.kept += r.all[static_cast<size_t>(d)];
    }
  }
  return r;
}

// `y` with the reduced dims back in, repeated to `shape` without a copy.
Tensor expand_back(const Tensor& y, std::span<const int> dims, const Shape& shape) {
  Shape with_ones = shape;
  for (const int d : dims) with_ones[d] = 1;
  return y.reshape(with_ones).expand(shape);
}

// The adjoint of a sum: g repeated over the reduced dims, times a factor. `like` brings their
// sizes and cuts.
DTensor spread(const Reduction& r, const DTensor& g, const DTensor& like, double factor) {
  const Rule rule{.op = "spread",
                  .letters = r.kept + "," + r.all + "->" + r.all,
                  .linear = {{0}},
                  .names = {"g", "like"}};
  const ops::Kernel kernel = [&r, factor](const ops::KernelInfo&, std::span<const Tensor> in) {
    const Tensor part = factor == 1.0 ? in[0] : cpu::scale(in[0], factor);
    return std::vector<Tensor>{expand_back(part, r.dims, in[1].shape()).clone()};
  };
  return ops::run1({.rule = rule, .kernel = kernel}, {g, like});
}

DTensor run_sum(std::string_view op, const DTensor& a, std::span<const int> dims, bool divide,
                CallSite site) {
  const Reduction r = reduction_of(op, a, dims);
  const double factor = divide ? 1.0 / static_cast<double>(r.count) : 1.0;
  const Rule rule{.op = std::string(op), .letters = r.all + "->" + r.kept, .linear = {{0}}};
  const ops::Kernel kernel = [&r, divide, factor](const ops::KernelInfo&,
                                                  std::span<const Tensor> in) {
    // A scalar has no dim to reduce, and "no dims" would be read as all.
    if (r.dims.empty()) return std::vector<Tensor>{in[0]};
    if (!divide) return std::vector<Tensor>{cpu::sum(in[0], r.dims)};
    const bool wide = in[0].dtype() == DType::kBFloat16;
    const Tensor total = cpu::sum(wide ? in[0].to(DType::kFloat32) : in[0], r.dims);
    return std::vector<Tensor>{cpu::scale(total, factor).to(in[0].dtype())};
  };
  const auto backward = [&](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    return [r, factor, like = ops::shape_operand(in[0])](std::span<const DTensor> g) {
      return std::vector<DTensor>{spread(r, g[0], like, factor)};
    };
  };
  return ops::run1({.rule = rule, .kernel = kernel, .backward = backward, .site = site}, {a});
}

using Extreme = Tensor (*)(const Tensor&, std::span<const int>, cpu::KeepDims);

// g to the elements of x that equal y, in equal parts.
template <class T>
Tensor select_extreme(const Tensor& g, const Tensor& x, const Tensor& y,
                      std::span<const int> dims) {
  const Tensor all_y = expand_back(y, dims, x.shape()).contiguous();
  const Tensor all_x = x.contiguous();
  const Tensor hit = Tensor::zeros(x.shape(), x.dtype());
  T* h = hit.data<T>();
  const T* px = all_x.data<T>();
  const T* py = all_y.data<T>();
  for (int64_t i = 0; i < x.numel(); ++i) h[i] = px[i] == py[i] ? T(1) : T(0);
  const Tensor counts = expand_back(cpu::sum(hit, dims), dims, x.shape()).contiguous();
  const Tensor all_g = expand_back(g, dims, x.shape()).contiguous();
  const T* pg = all_g.data<T>();
  const T* pc = counts.data<T>();
  for (int64_t i = 0; i < x.numel(); ++i) h[i] = h[i] == T(0) ? T(0) : pg[i] / pc[i];
  return hit;
}

DTensor extreme_gradient(const Reduction& r, const DTensor& g, const DTensor& x, const DTensor& y) {
  if (y.spec().has_partial()) {
    throw PlacementError("the gradient of " + to_string(Partial(y.spec().partial_op())) +
                         ": which rank holds the extreme is not known; redistribute the operand "
                         "so that the reduced dims are not cut");
  }
  std::string reduced;
  for (const int d : r.dims) reduced += r.all[static_cast<size_t>(d)];
  const Rule rule{.op = "extreme_backward",
                  .letters = r.kept + "," + r.all + "," + r.kept + "->" + r.all,
                  .uncut = reduced,
                  .linear = {{0}},
                  .names = {"g", "x", "y"}};
  const ops::Kernel kernel = [&r](const ops::KernelInfo&, std::span<const Tensor> in) {
    if (in[1].dtype() == DType::kFloat64) {
      return std::vector<Tensor>{select_extreme<double>(in[0], in[1], in[2], r.dims)};
    }
    const DType f = DType::kFloat32;
    const Tensor dx = select_extreme<float>(in[0].to(f), in[1].to(f), in[2].to(f), r.dims);
    return std::vector<Tensor>{dx.to(in[1].dtype())};
  };
  return ops::run1({.rule = rule, .kernel = kernel}, {g, x, y});
}

DTensor run_extreme(std::string_view op, const DTensor& a, std::span<const int> dims, Extreme f,
                    PartialOp reduce, CallSite site) {
  const Reduction r = reduction_of(op, a, dims);
  const Rule rule{.op = std::string(op), .letters = r.all + "->" + r.kept, .reduce = reduce};
  const ops::Kernel kernel = [&r, f](const ops::KernelInfo&, std::span<const Tensor> in) {
    if (r.dims.empty()) return std::vector<Tensor>{in[0]};
    return std::vector<Tensor>{f(in[0], r.dims, cpu::KeepDims::kNo)};
  };
  const auto backward = [&](std::span<const DTensor> in,
                            std::span<const DTensor> out) -> BackwardFn {
    return [r, x = Saved(in[0], op), y = Saved(out[0].detach(), op)](std::span<const DTensor> g) {
      return std::vector<DTensor>{extreme_gradient(r, g[0], x.value(), y.value())};
    };
  };
  return ops::run1({.rule = rule, .kernel = kernel, .backward = backward, .site = site}, {a});
}

}  // namespace

DTensor sum(const DTensor& a, std::span<const int> dims, CallSite site) {
  return run_sum("sum", a, dims, false, site);
}

DTensor mean(const DTensor& a, std::span<const int> dims, CallSite site) {
  ops::check_floating("mean", a);
  return run_sum("mean", a, dims, true, site);
}

DTensor amax(const DTensor& a, std::span<const int> dims, CallSite site) {
  return run_extreme("amax", a, dims, cpu::amax, PartialOp::kMax, site);
}

DTensor amin(const DTensor& a, std::span<const int> dims, CallSite site) {
  return run_extreme("amin", a, dims, cpu::amin, PartialOp::kMin, site);
}

}  // namespace dtensor
