#include "dtensor/ops/view.h"

#include <array>
#include <string>
#include <utility>
#include <variant>

#include "dtensor/ops/irregular.h"
#include "dtensor/ops/one_input.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view_layout.h"

namespace dtensor {
namespace {

enum class Otherwise { kCopy, kRefuse };  // where strides allow no view

// A rank's piece of `from` as one of `shape`. Whether it is a view does not depend on how many rows
// this rank happens to hold: an error, or shared memory, on one rank only would be worse.
Tensor local_view(const Tensor& t, const Shape& local_shape, const Shape& from, const Shape& shape,
                  Otherwise otherwise) {
  if (ops::can_view(from, shape, t.shape(), t.strides())) return t.view(local_shape);
  if (otherwise == Otherwise::kCopy) return t.clone().view(local_shape);
  throw ArgumentError("view: " + to_string(from) + " in memory with strides " +
                      to_string(t.strides()) + " is not a view of shape " + to_string(shape) +
                      "; use reshape");
}

// `shape` has no -1 any more.
DTensor to_shape(const std::string& op, const DTensor& a, const Shape& shape, Otherwise otherwise,
                 CallSite site) {
  if (shape == a.shape()) return a;
  DTensor placed = a;
  Layout out;
  if (!a.mesh().defined()) {
    out = Layout::replicated(MeshLayout(), shape);
  } else {
    auto found = ops::reshape_layout(a.layout(), shape);
    if (const auto* mismatch = std::get_if<RuleMismatch>(&found)) {
      const Rule rule{.op = op + " to " + to_string(shape), .letters = {}};
      placed = ops::move_or_refuse(rule, a, *mismatch,
                                   ops::reshape_fixes(a.layout(), shape, a.dtype()), site);
      found = ops::reshape_layout(placed.layout(), shape);
    }
    out = std::get<Layout>(std::move(found));
  }
  const auto kernel = [&](const Tensor& t, const Shape& local_shape) {
    return local_view(t, local_shape, a.shape(), shape, otherwise);
  };
  return ops::run_placed(
      {.op = op,
       .out = out,
       .kernel = kernel,
       .backward = [from = a.shape()](const DTensor& g) { return reshape(g, from); },
       .site = site,
       .twice = true},
      placed);
}

// `shape` with every -1 replaced by a's size.
Shape expanded_shape(const DTensor& a, const Shape& shape) {
  Shape to = shape;
  const int lead = shape.ndim() - a.ndim();
  bool fits = lead >= 0;
  for (int d = 0; fits && d < to.ndim(); ++d) {
    if (to[d] == -1 && d >= lead) to[d] = a.size(d - lead);
    fits = to[d] >= 0 && (d < lead || a.size(d - lead) == 1 || a.size(d - lead) == to[d]);
  }
  if (fits) return to;
  throw ArgumentError("expand: " + to_string(a.shape()) + " to " + to_string(shape) +
                      "; only dims of size 1 and new leading dims are repeated");
}

}  // namespace

DTensor permute(const DTensor& a, std::span<const int> dims, CallSite site) {
  ops::check_same_dtype("permute", {a});
  const int n = a.ndim();
  const std::string from = ops::letters_of(n);
  std::string to;
  std::vector<int> order;
  std::vector<int> back(static_cast<size_t>(n), -1);
  for (const int given : dims) {
    const int d = normalize_dim(given, n, "permute");
    to += from[static_cast<size_t>(d)];
    back[static_cast<size_t>(d)] = static_cast<int>(order.size());
    order.push_back(d);
  }
  if (order.size() != back.size() || std::ranges::count(back, -1) > 0) {
    throw ArgumentError("permute: " + to_string(a.shape()) + " wants each of its " +
                        std::to_string(n) + " dims once");
  }
  const Rule rule{.op = "permute", .letters = from + "->" + to, .linear = {{0}}};
  return ops::run_one(
      rule, a, [&order](const ops::KernelInfo&, const Tensor& x) { return x.permute(order); },
      [back](const DTensor& g) { return permute(g, back); }, site);
}

DTensor transpose(const DTensor& a, int d0, int d1, CallSite site) {
  ops::check_same_dtype("transpose", {a});
  const int x = normalize_dim(d0, a.ndim(), "transpose");
  const int y = normalize_dim(d1, a.ndim(), "transpose");
  const std::string from = ops::letters_of(a.ndim());
  std::string to = from;
  std::swap(to[static_cast<size_t>(x)], to[static_cast<size_t>(y)]);
  const Rule rule{.op = "transpose", .letters = from + "->" + to, .linear = {{0}}};
  return ops::run_one(
      rule, a, [x, y](const ops::KernelInfo&, const Tensor& t) { return t.transpose(x, y); },
      [x, y](const DTensor& g) { return transpose(g, x, y); }, site);
}

DTensor reshape(const DTensor& a, const Shape& shape, CallSite site) {
  ops::check_same_dtype("reshape", {a});
  return to_shape("reshape", a, ops::infer_shape(a.shape(), shape), Otherwise::kCopy, site);
}

DTensor view(const DTensor& a, const Shape& shape, CallSite site) {
  ops::check_same_dtype("view", {a});
  return to_shape("view", a, ops::infer_shape(a.shape(), shape), Otherwise::kRefuse, site);
}

DTensor flatten(const DTensor& a, int first, int last, CallSite site) {
  ops::check_same_dtype("flatten", {a});
  if (a.ndim() == 0) return to_shape("flatten", a, {1}, Otherwise::kCopy, site);
  const int begin = normalize_dim(first, a.ndim(), "flatten");
  const int end = normalize_dim(last, a.ndim(), "flatten");
  if (begin > end) {
    throw ArgumentError("flatten: dims " + std::to_string(begin) + " to " + std::to_string(end) +
                        " of " + to_string(a.shape()));
  }
  Shape shape;
  for (int d = 0; d < a.ndim(); ++d) {
    if (d > begin && d <= end) {
      shape[begin] *= a.size(d);
    } else {
      shape.push_back(a.size(d));
    }
  }
  return to_shape("flatten", a, shape, Otherwise::kCopy, site);
}

DTensor unflatten(const DTensor& a, int dim, const Shape& sizes, CallSite site) {
  ops::check_same_dtype("unflatten", {a});
  const int at = normalize_dim(dim, a.ndim(), "unflatten");
  const Shape parts = ops::infer_shape({a.size(at)}, sizes);
  Shape shape;
  for (int d = 0; d < a.ndim(); ++d) {
    if (d != at) {
      shape.push_back(a.size(d));
    } else {
      for (const int64_t n : parts) shape.push_back(n);
    }
  }
  return to_shape("unflatten", a, shape, Otherwise::kCopy, site);
}

DTensor squeeze(const DTensor& a, int dim, CallSite site) {
  ops::check_same_dtype("squeeze", {a});
  const int at = normalize_dim(dim, a.ndim(), "squeeze");
  if (a.size(at) != 1) {
    throw ArgumentError("squeeze: dim " + std::to_string(at) + " of " + to_string(a.shape()) +
                        " is not of size 1");
  }
  Shape shape;
  for (int d = 0; d < a.ndim(); ++d) {
    if (d != at) shape.push_back(a.size(d));
  }
  return to_shape("squeeze", a, shape, Otherwise::kCopy, site);
}

DTensor unsqueeze(const DTensor& a, int dim, CallSite site) {
  ops::check_same_dtype("unsqueeze", {a});
  const int at = normalize_dim(dim, a.ndim() + 1, "unsqueeze");
  Shape shape;
  for (int d = 0; d < a.ndim(); ++d) {
    if (d == at) shape.push_back(1);
    shape.push_back(a.size(d));
  }
  if (at == a.ndim()) shape.push_back(1);
  return to_shape("unsqueeze", a, shape, Otherwise::kCopy, site);
}

DTensor sum_to(const DTensor& g, const Shape& shape) {
  std::vector<int> dims;
  const int lead = g.ndim() - shape.ndim();
  for (int d = 0; d < g.ndim(); ++d) {
    if (d < lead || shape[d - lead] != g.size(d)) dims.push_back(d);
  }
  return dims.empty() ? g : reshape(sum(g, dims), shape);
}

DTensor expand(const DTensor& a, const Shape& shape, CallSite site) {
  ops::check_same_dtype("expand", {a});
  const Shape to = expanded_shape(a, shape);
  if (to == a.shape()) return a;
  const int lead = to.ndim() - a.ndim();
  const std::string out = ops::letters_of(to.ndim());
  std::string in = out.substr(static_cast<size_t>(lead));
  Rule rule{.op = "expand", .letters = {}, .linear = {{0}}};
  for (int d = 0; d < to.ndim(); ++d) {
    if (d >= lead && a.size(d - lead) == to[d]) continue;
    rule.made.push_back({out[static_cast<size_t>(d)], to[d]});
    if (d < lead) continue;
    char& letter = in[static_cast<size_t>(d - lead)];  // of size 1, repeated
    letter = static_cast<char>(letter - 'a' + 'A');
    rule.uncut += letter;
  }
  rule.letters = in + "->" + out;
  const auto kernel = [&](const ops::KernelInfo&, const Tensor& t) {
    Shape local = to;
    for (int d = lead; d < to.ndim(); ++d) {
      if (a.size(d - lead) == to[d]) local[d] = t.size(d - lead);
    }
    return t.expand(local);
  };
  return ops::run_one(
      rule, a, kernel, [from = a.shape()](const DTensor& g) { return sum_to(g, from); }, site);
}

}  // namespace dtensor
