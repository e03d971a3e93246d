#include "dtensor/ops/sort.h"

#include <string>
#include <utility>

#include "dtensor/ops/cpu/index.h"
#include "dtensor/ops/cpu/sort.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/index.h"
#include "dtensor/ops/one_input.h"

namespace dtensor {
namespace {

struct Ordering {
  int dim;
  cpu::Order order;
  int64_t count;
};

// g to where the values stood: `wide` is the operand's letters, `kept` the result's.
DTensor to_their_places(std::string_view op, const DTensor& g, const DTensor& indices, int dim,
                        int64_t size) {
  const std::string wide = ops::letters_of(g.ndim());
  const std::string kept = ops::letters_with(g.ndim(), dim, 'Z');
  const Rule rule{.op = std::string(op) + "_backward",
                  .letters = kept + "," + kept + "->" + wide,
                  .uncut = "Z",
                  .made = {{wide[static_cast<size_t>(dim)], size}},
                  .linear = {{0}},
                  .names = {"g", "indices"}};
  const ops::Kernel kernel = [=](const ops::KernelInfo&, ops::Pieces in) {
    return ops::Tensors{cpu::scatter_sum(in[0], dim, in[1], {0, size})};
  };
  const auto backward = [=](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    return [dim, indices = Saved(in[1], "sort")](std::span<const DTensor> up) {
      return Grads{gather(up[0], dim, indices.value()), DTensor()};
    };
  };
  return ops::run1({.rule = rule, .kernel = kernel, .backward = backward, .twice = true},
                   {g, indices});
}

SortResult order(std::string_view op, const DTensor& a, const Ordering& by, CallSite site) {
  const std::string in = ops::letters_of(a.ndim());
  const std::string out = ops::letters_with(a.ndim(), by.dim, 'Z');
  const Rule rule{.op = std::string(op),
                  .letters = in + "->" + out + "," + out,
                  .uncut = std::string(1, in[static_cast<size_t>(by.dim)]),
                  .made = {{'Z', by.count}}};
  const ops::Kernel kernel = [&by](const ops::KernelInfo&, ops::Pieces x) {
    cpu::Sorted sorted = cpu::sort(x[0], by.dim, by.order, by.count);
    return ops::Tensors{std::move(sorted.values), std::move(sorted.indices)};
  };
  const auto backward = [&](std::span<const DTensor> x, std::span<const DTensor> y) -> BackwardFn {
    return [op = rule.op, dim = by.dim, size = x[0].size(by.dim),
            indices = Saved(y[1].detach(), op)](std::span<const DTensor> g) {
      return Grads{to_their_places(op, g[0], indices.value(), dim, size)};
    };
  };
  std::vector<DTensor> both = ops::run({.rule = rule,
                                        .kernel = kernel,
                                        .backward = backward,
                                        .second_dtype = DType::kInt64,
                                        .site = site,
                                        .twice = true},
                                       {&a, 1});
  return {both[0], both[1]};
}

int checked_dim(const char* op, const DTensor& a, int dim) {
  ops::check_same_dtype(op, {a});
  if (a.ndim() == 0) throw ArgumentError(std::string(op) + ": a scalar has no dim to sort");
  return normalize_dim(dim, a.ndim(), op);
}

}  // namespace

SortResult sort(const DTensor& a, const SortOptions& options, CallSite site) {
  const int d = checked_dim("sort", a, options.dim);
  return order(
      "sort", a,
      {d, options.descending ? cpu::Order::kDescending : cpu::Order::kAscending, a.size(d)}, site);
}

DTensor argsort(const DTensor& a, const SortOptions& options, CallSite site) {
  const int d = checked_dim("argsort", a, options.dim);
  return order(
             "argsort", a,
             {d, options.descending ? cpu::Order::kDescending : cpu::Order::kAscending, a.size(d)},
             site)
      .indices;
}

SortResult topk(const DTensor& a, int64_t k, int dim, CallSite site) {
  const int d = checked_dim("topk", a, dim);
  if (k < 0 || k > a.size(d)) {
    throw ArgumentError("topk: " + std::to_string(k) + " of dim " + std::to_string(d) + " of " +
                        to_string(a.shape()));
  }
  return order("topk", a, {d, cpu::Order::kDescending, k}, site);
}

}  // namespace dtensor
