#include "dtensor/ops/nan_scope.h"

#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/tensor/backward.h"

namespace dtensor::ops {
namespace {

// The row-major number of the first NaN.
std::optional<int64_t> first_nan(const DTensor& t) {
  if (!t.has_local() || !is_floating(t.dtype())) return std::nullopt;
  const Tensor values = t.local_tensor().to(DType::kFloat64).contiguous();
  const int64_t n = values.numel();
  const double* x = n > 0 ? values.data<double>() : nullptr;
  for (int64_t i = 0; i < n; ++i) {
    if (std::isnan(x[i])) return i;
  }
  return std::nullopt;
}

// The global index of element `i` of this rank's piece.
Shape global_index(const DTensor& t, int64_t i) {
  const Coordinate at = t.mesh().coordinate().value_or(Coordinate{});
  const Box box = t.layout().box(at);
  Shape index = box.offset;
  for (int d = t.ndim() - 1; d >= 0; --d) {
    index[d] += i % box.size[d];
    i /= box.size[d];
  }
  return index;
}

std::string site_text(CallSite site) {
  return site.line > 0 ? std::string(site.file) + ":" + std::to_string(site.line) : "";
}

// "relu (model.cc:12)", "relu_backward in backward of relu (model.cc:12)"
std::string call_text(const OpRun& run) {
  const Node* node = Context::current().slot<RunningNode>().node;
  std::string text(run.op);
  if (node != nullptr) text += " in backward of " + std::string(node->op());
  const std::string site = site_text(node != nullptr ? node->site() : run.site);
  return site.empty() ? text : text + " (" + site + ")";
}

void check(const OpRun& run) {
  for (const DTensor& y : run.outputs) {
    const auto found = first_nan(y);
    if (!found) continue;
    for (const DTensor& x : run.inputs) {
      if (first_nan(x)) return;
    }
    std::string text = call_text(run);
    text += " gave the first NaN on rank " + std::to_string(y.mesh().rank()) + ", at " +
            to_string(global_index(y, *found)) + " of " + std::string(name_of(y.dtype())) +
            to_string(y.shape());
    if (y.mesh().defined()) text += " " + to_string(y.spec());
    text += "; its operands have none there";
    tell_other_ranks(run.inputs, text);
    tell_other_ranks(run.outputs, text);
    throw Error(text);
  }
}

RuleTap with_check() {
  RuleTap tap = Context::current().slot<RuleTap>();
  tap.ran = [before = tap.ran](const OpRun& run) {
    if (before) before(run);
    check(run);
  };
  return tap;
}

}  // namespace

NanScope::NanScope() : scope_(with_check()) {}

}  // namespace dtensor::ops
