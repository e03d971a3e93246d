#include "dtensor/ops/rearrange.h"

#include <algorithm>
#include <string>
#include <utility>

#include "dtensor/ops/broadcast.h"
#include "dtensor/ops/local_select.h"
#include "dtensor/ops/one_input.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/slice.h"
#include "dtensor/ops/view.h"
#include "dtensor/tensor/factory.h"
#include "dtensor/tensor/kernels.h"

namespace dtensor {
namespace {

// A rule whose output has the operand's letters; `dim` may not be cut.
Rule along(std::string_view op, int ndim, int dim) {
  const std::string l = ops::letters_of(ndim);
  return Rule{.op = std::string(op),
              .letters = l + "->" + l,
              .uncut = std::string(1, l[static_cast<size_t>(dim)]),
              .linear = {{0}}};
}

Tensor rolled(const Tensor& x, int64_t shift, int dim) {
  const int64_t n = x.size(dim);
  const Tensor y = Tensor::empty(x.shape(), x.dtype());
  if (n == 0) return y;
  const int64_t by = (shift % n + n) % n;
  kernels::copy(x.narrow(dim, 0, n - by), y.narrow(dim, by, n - by));
  kernels::copy(x.narrow(dim, n - by, by), y.narrow(dim, 0, by));
  return y;
}

Tensor flipped(const Tensor& x, int dim) {
  const int64_t n = x.size(dim);
  const Tensor y = Tensor::empty(x.shape(), x.dtype());
  for (int64_t i = 0; i < n; ++i) {
    kernels::copy(x.narrow(dim, i, 1), y.narrow(dim, n - 1 - i, 1));
  }
  return y;
}

// The diagonal of two dims of a local tensor as its last dim, without a copy.
Tensor local_diagonal(const Tensor& x, int64_t offset, int dim0, int dim1, int64_t length) {
  Shape shape;
  Shape strides;
  for (int d = 0; d < x.ndim(); ++d) {
    if (d == dim0 || d == dim1) continue;
    shape.push_back(x.shape()[d]);
    strides.push_back(x.strides()[d]);
  }
  shape.push_back(length);
  strides.push_back(x.strides()[dim0] + x.strides()[dim1]);
  const int64_t down = std::max<int64_t>(0, -offset);
  const int64_t right = std::max<int64_t>(0, offset);
  const int64_t first = length == 0 ? 0 : down * x.strides()[dim0] + right * x.strides()[dim1];
  return x.as_strided(shape, strides, x.offset() + first);
}

}  // namespace

DTensor repeat(const DTensor& a, const Shape& times, CallSite site) {
  ops::check_same_dtype("repeat", {a});
  const int lead = times.ndim() - a.ndim();
  if (lead < 0 || std::ranges::any_of(times, [](int64_t n) { return n < 0; })) {
    throw ArgumentError("repeat: " + to_string(a.shape()) + " by " + to_string(times) +
                        "; give a number of times for each dim");
  }
  const std::string out = ops::letters_of(times.ndim());
  std::string in = out.substr(static_cast<size_t>(lead));
  Rule rule{.op = "repeat", .letters = {}, .linear = {{0}}};
  for (int d = 0; d < times.ndim(); ++d) {
    if (d >= lead && times[d] == 1) continue;
    const int64_t size = d < lead ? 1 : a.size(d - lead);
    rule.made.push_back({out[static_cast<size_t>(d)], checked_mul(times[d], size)});
    if (d < lead) continue;
    char& letter = in[static_cast<size_t>(d - lead)];
    letter = static_cast<char>(letter - 'a' + 'A');
    rule.uncut += letter;
  }
  rule.letters = in + "->" + out;
  const auto kernel = [&](const ops::KernelInfo&, const Tensor& x) {
    Tensor y = x;
    for (int d = 0; d < lead; ++d) y = y.reshape(ops::with_dim(y.shape(), 0, 1));
    for (int d = 0; d < times.ndim(); ++d) {
      if (times[d] == 1) continue;
      Shape shape = y.shape();
      shape[d] *= times[d];
      const Tensor longer = Tensor::empty(shape, x.dtype());
      for (int64_t i = 0; i < times[d]; ++i) {
        kernels::copy(y, longer.narrow(d, i * y.size(d), y.size(d)));
      }
      y = longer;
    }
    return y.storage() == x.storage() ? y.clone() : y;
  };
  const auto adjoint = [times, lead, from = a.shape()](const DTensor& g) {
    DTensor part = g;
    for (int d = 0; d < times.ndim(); ++d) {
      if (times[d] == 1) continue;
      const int64_t size = d < lead ? 1 : from[d - lead];
      part = sum(unflatten(part, d, {times[d], size}), {d});
    }
    return lead > 0 ? reshape(part, from) : part;
  };
  return ops::run_one(rule, a, kernel, adjoint, site);
}

DTensor pad(const DTensor& a, int dim, const PadOptions& options, CallSite site) {
  ops::check_same_dtype("pad", {a});
  const int d = normalize_dim(dim, a.ndim(), "pad");
  ops::check_number("pad", a, options.value);
  check_range("pad", a.dtype(), options.value);
  if (options.before < 0 || options.after < 0) {
    throw ArgumentError("pad: " + std::to_string(options.before) + " before and " +
                        std::to_string(options.after) + " after; use narrow() to take away");
  }
  const int64_t n = a.size(d);
  const int64_t size = checked_add(n, checked_add(options.before, options.after));
  Rule rule = along("pad", a.ndim(), d);
  const char made = static_cast<char>('A' + d);
  rule.letters = ops::letters_of(a.ndim()) + "->" + ops::letters_with(a.ndim(), d, made);
  rule.made = {{made, size}};
  if (options.value != 0.0) {
    rule.op = "pad_value";
    rule.linear.clear();
  }
  const auto kernel = [&](const ops::KernelInfo&, const Tensor& x) {
    Shape shape = x.shape();
    shape[d] = size;
    const Tensor y = Tensor::full(shape, options.value, x.dtype());
    kernels::copy(x, y.narrow(d, options.before, n));
    return y;
  };
  const auto adjoint = [d, n, before = options.before](const DTensor& g) {
    return narrow(g, d, before, n);
  };
  return ops::run_one(rule, a, kernel, adjoint, site);
}

DTensor roll(const DTensor& a, int64_t shift, int dim, CallSite site) {
  ops::check_same_dtype("roll", {a});
  const int d = normalize_dim(dim, a.ndim(), "roll");
  shift %= std::max<int64_t>(1, a.size(d));
  return ops::run_one(
      along("roll", a.ndim(), d), a,
      [&](const ops::KernelInfo&, const Tensor& x) { return rolled(x, shift, d); },
      [shift, d](const DTensor& g) { return roll(g, -shift, d); }, site);
}

DTensor flip(const DTensor& a, int dim, CallSite site) {
  ops::check_same_dtype("flip", {a});
  const int d = normalize_dim(dim, a.ndim(), "flip");
  return ops::run_one(
      along("flip", a.ndim(), d), a,
      [&](const ops::KernelInfo&, const Tensor& x) { return flipped(x, d); },
      [d](const DTensor& g) { return flip(g, d); }, site);
}

DTensor diagonal(const DTensor& a, const DiagonalOptions& options, CallSite site) {
  ops::check_same_dtype("diagonal", {a});
  const int x = normalize_dim(options.dim0, a.ndim(), "diagonal");
  const int y = normalize_dim(options.dim1, a.ndim(), "diagonal");
  if (x == y) throw ArgumentError("diagonal: dim " + std::to_string(x) + " is given twice");
  const int64_t offset = options.offset;
  const int64_t rows = a.size(x) - std::max<int64_t>(0, -offset);
  const int64_t columns = a.size(y) - std::max<int64_t>(0, offset);
  const int64_t length = std::max<int64_t>(0, std::min(rows, columns));
  const std::string from = ops::letters_of(a.ndim());
  std::string kept;
  for (int d = 0; d < a.ndim(); ++d) {
    if (d != x && d != y) kept += from[static_cast<size_t>(d)];
  }
  const std::string lost = {from[static_cast<size_t>(x)], from[static_cast<size_t>(y)]};
  const Rule rule{.op = "diagonal",
                  .letters = from + "->" + kept + "z",
                  .uncut = lost,
                  .made = {{'z', length}},
                  .linear = {{0}}};
  const Rule back{.op = "diagonal_backward",
                  .letters = kept + "z->" + from,
                  .uncut = "z",
                  .made = {{lost[0], a.size(x)}, {lost[1], a.size(y)}},
                  .linear = {{0}}};
  const auto adjoint = [=, shape = a.shape()](const DTensor& g) {
    const auto widened = [&](const ops::KernelInfo&, const Tensor& local) {
      Shape wide;
      for (int d = 0, k = 0; d < shape.ndim(); ++d) {
        wide.push_back(d == x || d == y ? shape[d] : local.size(k++));
      }
      const Tensor zeros = Tensor::zeros(wide, local.dtype());
      kernels::copy(local, local_diagonal(zeros, offset, x, y, length));
      return zeros;
    };
    const DiagonalOptions same{.offset = offset, .dim0 = x, .dim1 = y};
    return ops::run_one(
        back, g, widened, [same](const DTensor& up) { return diagonal(up, same); }, CallSite{});
  };
  return ops::run_one(
      rule, a,
      [&](const ops::KernelInfo&, const Tensor& t) {
        return local_diagonal(t, offset, x, y, length);
      },
      adjoint, site);
}

DTensor repeat_interleave(const DTensor& a, int64_t times, int dim, CallSite site) {
  ops::check_same_dtype("repeat_interleave", {a});
  const int d = normalize_dim(dim, a.ndim(), "repeat_interleave");
  if (times < 0) throw ArgumentError("repeat_interleave: " + std::to_string(times) + " times");
  Shape shape;
  for (int k = 0; k < a.ndim(); ++k) {
    shape.push_back(a.size(k));
    if (k == d) shape.push_back(times);
  }
  return flatten(expand(unsqueeze(a, d + 1, site), shape, site), d, d + 1, site);
}

}  // namespace dtensor
