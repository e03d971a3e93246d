#include "dtensor/ops/scan.h"

#include <string>

#include "dtensor/ops/cpu/scan.h"
#include "dtensor/ops/one_input.h"

namespace dtensor {
namespace {

Rule scan_rule(std::string_view op, int ndim, int dim) {
  const std::string l = ops::letters_of(ndim);
  return Rule{.op = std::string(op),
              .letters = l + "->" + l,
              .uncut = std::string(1, l[static_cast<size_t>(dim)]),
              .linear = {{0}}};
}

// Each is the other's adjoint.
DTensor scan(cpu::ScanFrom from, const DTensor& a, int dim, CallSite site) {
  const bool forward = from == cpu::ScanFrom::kFirst;
  return ops::run_one(
      scan_rule(forward ? "cumsum" : "cumsum_backward", a.ndim(), dim), a,
      [from, dim](const ops::KernelInfo&, const Tensor& x) { return cpu::cumsum(x, dim, from); },
      [forward, dim](const DTensor& g) {
        return scan(forward ? cpu::ScanFrom::kLast : cpu::ScanFrom::kFirst, g, dim, {});
      },
      site);
}

}  // namespace

DTensor cumsum(const DTensor& a, int dim, CallSite site) {
  ops::check_same_dtype("cumsum", {a});
  return scan(cpu::ScanFrom::kFirst, a, normalize_dim(dim, a.ndim(), "cumsum"), site);
}

}  // namespace dtensor
