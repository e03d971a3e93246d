// An op of one input and one output: its rule, its kernel on this rank's piece, and its adjoint.

#pragma once

#include <utility>
#include <vector>

#include "dtensor/ops/dispatch.h"

namespace dtensor::ops {

// kernel(info, local) -> Tensor; adjoint(grad of the output) -> grad of the input.
template <class F, class G>
DTensor run_one(const Rule& rule, const DTensor& a, F kernel, G adjoint, CallSite site) {
  const Kernel on_piece = [&kernel](const KernelInfo& info, Pieces in) {
    return ops::Tensors{kernel(info, in[0])};
  };
  const auto backward = [&adjoint](std::span<const DTensor>,
                                   std::span<const DTensor>) -> BackwardFn {
    return
        [adjoint = std::move(adjoint)](std::span<const DTensor> g) { return Grads{adjoint(g[0])}; };
  };
  return run1({.rule = rule, .kernel = on_piece, .backward = backward, .site = site, .twice = true},
              {a});
}

// Without a gradient: adjoints themselves.
template <class F>
DTensor run_one(const Rule& rule, const DTensor& a, F kernel) {
  const Kernel on_piece = [&kernel](const KernelInfo& info, Pieces in) {
    return ops::Tensors{kernel(info, in[0])};
  };
  return run1({.rule = rule, .kernel = on_piece}, {a});
}

// The letters of `ndim` dims with the one of `dim` replaced: by nothing where `by` is '\0'.
inline std::string letters_with(int ndim, int dim, char by) {
  std::string letters = letters_of(ndim);
  if (by == '\0') return letters.erase(static_cast<size_t>(dim), 1);
  letters[static_cast<size_t>(dim)] = by;
  return letters;
}

}  // namespace dtensor::ops
