#include "dtensor/optim/clip_grad_norm.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "dtensor/base/error.h"
#include "dtensor/ops/cpu/vector_norm.h"
#include "dtensor/optim/distinct.h"
#include "dtensor/tensor/move.h"

namespace dtensor::optim {
namespace {

enum class Norm { kOne, kTwo, kInfinity };

Norm norm_of(double type) {
  if (type == 1.0) return Norm::kOne;
  if (type == 2.0) return Norm::kTwo;
  if (type == std::numeric_limits<double>::infinity()) return Norm::kInfinity;
  throw ArgumentError("clip_grad_norm: norm_type " + std::to_string(type) +
                      "; use 1, 2 or infinity");
}

double part(Norm norm, const Tensor& x) {
  switch (norm) {
    case Norm::kOne:
      return cpu::sum_of_abs(x);
    case Norm::kTwo:
      return cpu::sum_of_squares(x);
    case Norm::kInfinity:
      break;
  }
  return cpu::max_abs(x);
}

// std::max would drop a NaN that stands second.
double join(Norm norm, double a, double b) {
  if (norm != Norm::kInfinity) return a + b;
  return std::isnan(a) || a > b ? a : b;
}

// Of the copies on R dims this rank holds the first.
bool counts_here(const DTensor& gradient) {
  if (!gradient.has_local()) return false;
  const DeviceMesh& mesh = gradient.mesh();
  for (int d = 0; d < mesh.ndim(); ++d) {
    if (gradient.layout().placement(d).is_replicate() && (*mesh.coordinate())[d] != 0) return false;
  }
  return true;
}

void refuse_partial(const nn::Parameter& p, const DTensor& gradient) {
  if (!gradient.spec().has_partial()) return;
  throw PlacementError("clip_grad_norm: the gradient of \"" + p.name() + "\" is Partial, " +
                       to_string(gradient.layout()) +
                       "; run the last backward of a step without {.defer = true}");
}

void check(const nn::Parameter& p, const DTensor& gradient, const DeviceMesh& mesh) {
  refuse_partial(p, gradient);
  if (mesh.defined() && !gradient.mesh().defined()) {
    throw PlacementError("clip_grad_norm: the gradient of \"" + p.name() +
                         "\" lies on no mesh, others on " + to_string(mesh.layout()) +
                         ": it would count once per rank; use nn::replicate(module, mesh)");
  }
  const auto& ranks = gradient.mesh().layout().ranks();
  const bool inside = !mesh.defined()
                          ? !gradient.mesh().defined()
                          : gradient.mesh().defined() && std::ranges::all_of(ranks, [&](int rank) {
                              return mesh.layout().contains(rank);
                            });
  if (!inside) {
    throw PlacementError("clip_grad_norm: the gradient of \"" + p.name() + "\" lies on mesh " +
                         to_string(gradient.mesh().layout()) + ", the norm is summed over " +
                         to_string(mesh.layout()) + "; give {.mesh = ...} with all its ranks");
  }
}

void scale_gradient(DTensor& value, double factor) {
  const DTensor gradient = value.grad();
  if (!gradient.defined() || !gradient.has_local()) return;
  const Tensor& local = gradient.local_tensor();
  // Two leaves may have been given one tensor as their gradient: such memory is not scaled twice.
  if (local.storage().use_count() == 1) {
    cpu::scale_in_place(local, factor);
    return;
  }
  const Tensor scaled = local.clone();
  cpu::scale_in_place(scaled, factor);
  value.set_grad(gradient.mesh().defined() ? DTensor(scaled, gradient.layout(), gradient.mesh())
                                           : DTensor(scaled));
}

// The one all-reduce.
double reduce(Norm norm, double mine, const DeviceMesh& mesh, CallSite site) {
  if (!mesh.defined() || mesh.size() == 1) return mine;
  const PartialOp op = norm == Norm::kInfinity ? PartialOp::kMax : PartialOp::kSum;
  const std::vector<Placement> partial(static_cast<size_t>(mesh.ndim()), Partial(op));
  const Layout from(mesh.layout(), {}, partial);
  const Layout to = Layout::replicated(mesh.layout(), {});
  const MoveItem item{.local = Tensor::full({}, mine, DType::kFloat64), .from = from, .to = to};
  return move_local(mesh, item, {.op = "clip_grad_norm", .site = site}).data<double>()[0];
}

}  // namespace

double grad_norm(const std::vector<nn::Parameter>& parameters, const ClipOptions& options,
                 CallSite site) {
  const Norm norm = norm_of(options.norm_type);
  DeviceMesh mesh = options.mesh;
  const std::vector<nn::Parameter> each = distinct(parameters);
  for (const nn::Parameter& p : each) {
    if (!mesh.defined()) mesh = p.value().mesh();
  }
  std::vector<DTensor> gradients;
  for (const nn::Parameter& p : each) {
    DTensor gradient = p.value().grad();
    if (!gradient.defined()) continue;
    check(p, gradient, mesh);
    gradients.push_back(std::move(gradient));
  }
  if (mesh.defined() && !mesh.coordinate()) return 0.0;
  double total = 0.0;
  for (const DTensor& g : gradients) {
    if (counts_here(g)) total = join(norm, total, part(norm, g.local_tensor()));
  }
  total = reduce(norm, total, mesh, site);
  return norm == Norm::kTwo ? std::sqrt(total) : total;
}

void scale_gradients(const std::vector<nn::Parameter>& parameters, double factor) {
  const std::vector<nn::Parameter> each = distinct(parameters);
  for (const nn::Parameter& p : each) {
    const DTensor gradient = p.value().grad();
    if (gradient.defined()) refuse_partial(p, gradient);
  }
  for (const nn::Parameter& p : each) scale_gradient(p.value(), factor);
}

double clip_grad_norm(const std::vector<nn::Parameter>& parameters, double max_norm,
                      const ClipOptions& options, CallSite site) {
  const double total = grad_norm(parameters, options, site);
  const double factor = max_norm / (total + 1e-6);
  // From 1 on no bit changes; written so that a NaN reaches the gradients.
  if (!(factor >= 1.0)) scale_gradients(parameters, factor);
  return total;
}

}  // namespace dtensor::optim
