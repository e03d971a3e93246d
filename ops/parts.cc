#include "dtensor/ops/parts.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "dtensor/base/cut.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/like.h"
#include "dtensor/ops/local_select.h"
#include "dtensor/tensor/kernels.h"

namespace dtensor {
namespace {

// How a tensor lies in parts along a dim: pieces of given sizes, or single elements without it.
struct Parting {
  int dim = 0;
  std::vector<int64_t> sizes = {};  // of the pieces; 1 each where `dropped`
  bool dropped = false;             // the parts lack the dim

  int64_t total() const { return std::accumulate(sizes.begin(), sizes.end(), int64_t{0}); }
  Tensor part(const Tensor& whole, size_t i, int64_t begin) const {
    return dropped ? ops::local_select(whole, dim, begin) : whole.narrow(dim, begin, sizes[i]);
  }
};

// Letters of the whole, and of each part. Parts of one size share a letter: none is cut.
struct PartLetters {
  std::string whole;
  std::vector<std::string> parts;
  std::vector<MadeLetter> made;  // those of the parts' sizes
  std::string uncut;
};

PartLetters letters_of(const Parting& p, int ndim) {
  PartLetters l{.whole = ops::letters_of(ndim), .parts = {}, .made = {}, .uncut = {}};
  for (const int64_t size : p.sizes) {
    std::string part = l.whole;
    if (p.dropped) {
      part.erase(static_cast<size_t>(p.dim), 1);
    } else {
      auto known = std::ranges::find(l.made, size, &MadeLetter::size);
      if (known == l.made.end()) {
        l.uncut += static_cast<char>('A' + l.made.size());
        known = l.made.insert(l.made.end(), {l.uncut.back(), size});
      }
      part[static_cast<size_t>(p.dim)] = known->letter;
    }
    l.parts.push_back(std::move(part));
  }
  return l;
}

std::string joined(const std::vector<std::string>& letters) {
  std::string text;
  for (size_t i = 0; i < letters.size(); ++i) text += (i == 0 ? "" : ",") + letters[i];
  return text;
}

// Sizes beyond these get calls of their own, so that there is a letter for each.
constexpr size_t kMostSizes = 26;

ops::MakeBackward apart_backward(std::string_view op, const Parting& p);

DTensor join(std::string_view op, std::span<const DTensor> parts, const Parting& p, int ndim,
             CallSite site) {
  const PartLetters l = letters_of(p, ndim);
  Rule rule{.op = std::string(op),
            .letters = joined(l.parts) + "->" + l.whole,
            .uncut = l.uncut,
            .made = {{l.whole[static_cast<size_t>(p.dim)], p.total()}},
            .linear = {std::vector<int>(parts.size())}};
  std::iota(rule.linear[0].begin(), rule.linear[0].end(), 0);
  const ops::Kernel kernel = [&p](const ops::KernelInfo&, ops::Pieces in) {
    Shape shape = in[0].shape();
    if (p.dropped) {
      shape = ops::with_dim(shape, p.dim, p.total());
    } else {
      shape[p.dim] = p.total();
    }
    const Tensor whole = Tensor::empty(shape, in[0].dtype());
    int64_t begin = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      kernels::copy(in[i], p.part(whole, i, begin));
      begin += p.sizes[i];
    }
    return ops::Tensors{whole};
  };
  return ops::run({.rule = rule,
                   .kernel = kernel,
                   .backward = apart_backward(op, p),
                   .site = site,
                   .twice = true},
                  parts)
      .front();
}

std::vector<DTensor> take_apart(std::string_view op, const DTensor& a, const Parting& p,
                                CallSite site) {
  const PartLetters l = letters_of(p, a.ndim());
  const Rule rule{.op = std::string(op),
                  .letters = l.whole + "->" + joined(l.parts),
                  .uncut = std::string(1, l.whole[static_cast<size_t>(p.dim)]),
                  .made = l.made,
                  .linear = {{0}}};
  const ops::Kernel kernel = [&p](const ops::KernelInfo&, ops::Pieces in) {
    std::vector<Tensor> parts;
    int64_t begin = 0;
    for (size_t i = 0; i < p.sizes.size(); ++i) {
      parts.push_back(p.part(in[0], i, begin));
      begin += p.sizes[i];
    }
    return parts;
  };
  // A part that no gradient reached counts as zeros.
  const auto backward = [&](std::span<const DTensor> in,
                            std::span<const DTensor> out) -> BackwardFn {
    std::vector<DTensor> likes;
    for (const DTensor& y : out) likes.push_back(ops::shape_operand(y));
    return [p, op = std::string(op), likes, ndim = in[0].ndim(),
            dtype = in[0].dtype()](std::span<const DTensor> g) {
      std::vector<DTensor> all(g.begin(), g.end());
      for (size_t i = 0; i < all.size(); ++i) {
        if (!all[i].defined()) all[i] = zeros_like(likes[i], {.dtype = dtype});
      }
      return Grads{join(op + "_backward", all, p, ndim, {})};
    };
  };
  return ops::run(
      {.rule = rule, .kernel = kernel, .backward = backward, .site = site, .twice = true}, {&a, 1});
}

ops::MakeBackward apart_backward(std::string_view op, const Parting& p) {
  return
      [op = std::string(op), p](std::span<const DTensor>, std::span<const DTensor>) -> BackwardFn {
        return [op, p](std::span<const DTensor> g) {
          return take_apart(op + "_backward", g[0], p, {});
        };
      };
}

void check_parts(const char* op, std::span<const DTensor> parts) {
  if (parts.empty()) throw ArgumentError(std::string(op) + ": no tensor is given");
  for (const DTensor& part : parts) ops::check_same_dtype(op, {parts[0], part});
}

size_t sizes_in(std::span<const int64_t> sizes) {
  std::vector<int64_t> all(sizes.begin(), sizes.end());
  std::ranges::sort(all);
  return static_cast<size_t>(std::unique(all.begin(), all.end()) - all.begin());
}

}  // namespace

DTensor cat(std::span<const DTensor> parts, int dim, CallSite site) {
  check_parts("cat", parts);
  const DTensor& first = parts[0];
  Parting p{.dim = normalize_dim(dim, first.ndim(), "cat")};
  for (const DTensor& part : parts) {
    bool fits = part.ndim() == first.ndim();
    for (int d = 0; fits && d < part.ndim(); ++d) {
      fits = d == p.dim || part.size(d) == first.size(d);
    }
    if (!fits) {
      throw ArgumentError("cat along dim " + std::to_string(p.dim) + ": " +
                          to_string(first.shape()) + " and " + to_string(part.shape()) +
                          " differ in another dim");
    }
    p.sizes.push_back(part.size(p.dim));
  }
  if (sizes_in(p.sizes) > kMostSizes) {
    const auto half = parts.size() / 2;
    return cat({cat(parts.first(half), p.dim, site), cat(parts.subspan(half), p.dim, site)}, p.dim,
               site);
  }
  return join("cat", parts, p, first.ndim(), site);
}

DTensor stack(std::span<const DTensor> parts, int dim, CallSite site) {
  check_parts("stack", parts);
  const DTensor& first = parts[0];
  for (const DTensor& part : parts) {
    if (part.shape() == first.shape()) continue;
    throw ArgumentError("stack: " + to_string(first.shape()) + " and " + to_string(part.shape()) +
                        " differ");
  }
  const Parting p{.dim = normalize_dim(dim, first.ndim() + 1, "stack"),
                  .sizes = std::vector<int64_t>(parts.size(), 1),
                  .dropped = true};
  return join("stack", parts, p, first.ndim() + 1, site);
}

std::vector<DTensor> split(const DTensor& a, std::span<const int64_t> sizes, int dim,
                           CallSite site) {
  ops::check_same_dtype("split", {a});
  const Parting p{.dim = normalize_dim(dim, a.ndim(), "split"),
                  .sizes = std::vector<int64_t>(sizes.begin(), sizes.end())};
  const bool negative = std::ranges::any_of(sizes, [](int64_t n) { return n < 0; });
  if (negative || sizes.empty() || p.total() != a.size(p.dim)) {
    throw ArgumentError("split: sizes " +
                        to_string(Shape(sizes.first(std::min<size_t>(sizes.size(), kMaxDims)))) +
                        (sizes.size() > kMaxDims ? " and more" : "") + " do not add up to dim " +
                        std::to_string(p.dim) + " of " + to_string(a.shape()));
  }
  if (sizes_in(sizes) > kMostSizes) {
    const size_t half = sizes.size() / 2;
    const auto left = sizes.first(half);
    const int64_t middle = std::accumulate(left.begin(), left.end(), int64_t{0});
    const int64_t both[] = {middle, a.size(p.dim) - middle};
    const std::vector<DTensor> halves = split(a, both, p.dim, site);
    std::vector<DTensor> all = split(halves[0], left, p.dim, site);
    for (DTensor& part : split(halves[1], sizes.subspan(half), p.dim, site)) {
      all.push_back(std::move(part));
    }
    return all;
  }
  return take_apart("split", a, p, site);
}

std::vector<DTensor> chunk(const DTensor& a, int n, int dim, CallSite site) {
  ops::check_same_dtype("chunk", {a});
  if (n < 1) throw ArgumentError("chunk: " + std::to_string(n) + " parts; give 1 or more");
  Parting p{.dim = normalize_dim(dim, a.ndim(), "chunk")};
  for (int c = 0; c < n; ++c) p.sizes.push_back(cut({0, a.size(p.dim)}, c, n).size());
  return take_apart("chunk", a, p, site);
}

std::vector<DTensor> unbind(const DTensor& a, int dim, CallSite site) {
  ops::check_same_dtype("unbind", {a});
  const int d = normalize_dim(dim, a.ndim(), "unbind");
  if (a.size(d) == 0) return {};
  return take_apart(
      "unbind", a,
      {.dim = d, .sizes = std::vector<int64_t>(static_cast<size_t>(a.size(d)), 1), .dropped = true},
      site);
}

}  // namespace dtensor
