#include "dtensor/ops/arg_extreme.h"

#include <string>
#include <vector>

#include "dtensor/ops/cpu/along_dims.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/index.h"
#include "dtensor/ops/reduction.h"
#include "dtensor/ops/view.h"

namespace dtensor {
namespace {

using Local = Tensor (*)(const Tensor&, std::span<const int>);

DTensor run(const char* op, Local local, const DTensor& a, std::optional<int> dim, KeepDims keep,
            CallSite site) {
  const ops::Reduction r = ops::reduction_of(op, a, dim ? Dims{*dim} : Dims{}, keep);
  if (r.count == 0) {
    throw ArgumentError(std::string(op) + ": " + to_string(a.shape()) +
                        " has no element to choose from");
  }
  Rule rule = r.rule(op);
  rule.uncut = r.reduced;
  const ops::Kernel kernel = [&](const ops::KernelInfo&, ops::Pieces in) {
    return ops::Tensors{ops::finished(local(in[0], r.dims), r, in[0].shape())};
  };
  return ops::run1({.rule = rule, .kernel = kernel, .dtype = DType::kInt64, .site = site}, {a});
}

ExtremeResult along(Local local, const char* op, const DTensor& a, int dim, KeepDims keep,
                    CallSite site) {
  const DTensor at = run(op, local, a, dim, KeepDims::kYes, site);
  const DTensor values = gather(a, dim, at, site);
  if (keep == KeepDims::kYes) return {values, at};
  return {squeeze(values, dim, site), squeeze(at, dim, site)};
}

}  // namespace

DTensor argmax(const DTensor& a, std::optional<int> dim, KeepDims keep, CallSite site) {
  return run("argmax", cpu::argmax, a, dim, keep, site);
}
DTensor argmin(const DTensor& a, std::optional<int> dim, KeepDims keep, CallSite site) {
  return run("argmin", cpu::argmin, a, dim, keep, site);
}

ExtremeResult max_along(const DTensor& a, int dim, KeepDims keep, CallSite site) {
  return along(cpu::argmax, "max_along", a, dim, keep, site);
}
ExtremeResult min_along(const DTensor& a, int dim, KeepDims keep, CallSite site) {
  return along(cpu::argmin, "min_along", a, dim, keep, site);
}

}  // namespace dtensor
