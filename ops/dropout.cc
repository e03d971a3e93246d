#include "dtensor/ops/dropout.h"

#include <string>
#include <vector>

#include "dtensor/ops/broadcast.h"
#include "dtensor/ops/cpu/dropout.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/tensor/random.h"

namespace dtensor {
namespace {

// The same stream drops the same elements: of `a` in forward, of its gradient in backward.
DTensor drop(const DTensor& a, RandomStream stream, double p, CallSite site) {
  const Rule rule = ops::pointwise_rule("dropout", a, true);
  const ops::Kernel kernel = [&](const ops::KernelInfo& info, ops::Pieces in) {
    Box box;
    const std::string letters = ops::letters_of(a.ndim());
    for (const char letter : letters) {
      box.offset.push_back(info.range(letter).begin);
      box.size.push_back(info.range(letter).size());
    }
    return ops::Tensors{cpu::dropout({in[0], box, a.shape()}, stream, p)};
  };
  const auto backward = [&](std::span<const DTensor>, std::span<const DTensor>) -> BackwardFn {
    return [stream, p](std::span<const DTensor> g) { return Grads{drop(g[0], stream, p, {})}; };
  };
  return ops::run1(
      {.rule = rule, .kernel = kernel, .backward = backward, .site = site, .twice = true}, {a});
}

}  // namespace

DTensor dropout(const DTensor& a, double p, CallSite site) {
  ops::check_floating("dropout", a);
  if (!(p >= 0.0 && p <= 1.0)) {
    throw ArgumentError("dropout: p is " + std::to_string(p) + ", not in [0, 1]");
  }
  return drop(a, next_random_stream(), p, site);
}

}  // namespace dtensor
