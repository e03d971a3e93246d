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

}  // namespace

DTensor cumsum(const DTensor& a, int dim, CallSite site) {
  ops::check_same_dtype("cumsum", {a});
  const int d = normalize_dim(dim, a.ndim(), "cumsum");
  return ops::run_one(
      scan_rule("cumsum", a.ndim(), d), a,
      [d](const ops::KernelInfo&, const Tensor& x) {
        return cpu::cumsum(x, d, cpu::ScanFrom::kFirst);
      },
      [d](const DTensor& g) {
        return ops::run_one(scan_rule("cumsum_backward", g.ndim(), d), g,
                            [d](const ops::KernelInfo&, const Tensor& x) {
                              return cpu::cumsum(x, d, cpu::ScanFrom::kLast);
                            });
      },
      site);
}

}  // namespace dtensor
