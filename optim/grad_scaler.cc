#include "dtensor/optim/grad_scaler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "dtensor/base/error.h"
#include "dtensor/ops/binary.h"
#include "dtensor/optim/clip_grad_norm.h"

namespace dtensor::optim {
namespace {

// Below this the scale is not cut any more: a loss of NaN would take it to 0 and every later
// gradient with it.
constexpr double kLeastScale = 1.0 / (1 << 24);

void check(bool holds, const std::string& what, double value) {
  if (holds) return;
  throw ArgumentError("GradScaler: " + what + ", not " + std::to_string(value));
}

bool is_positive(double x) { return x > 0.0 && std::isfinite(x); }

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options)
    : options_(options), scale_(options.scale) {
  check(is_positive(options.scale), "give a positive, finite scale", options.scale);
  check(options.growth >= 1.0 && std::isfinite(options.growth), "give a growth of at least 1",
        options.growth);
  check(options.backoff > 0.0 && options.backoff <= 1.0, "give a backoff in (0, 1]",
        options.backoff);
}

void GradScaler::restore(double scale, int64_t good_steps) {
  check(is_positive(scale), "restore a positive, finite scale", scale);
  scale_ = scale;
  good_steps_ = good_steps;
  found_ = Found::kNothing;
}

DTensor GradScaler::scale(const DTensor& loss) const { return mul(loss, scale_); }

void GradScaler::unscale(const std::vector<nn::Parameter>& parameters, CallSite site) {
  if (found_ != Found::kNothing) {
    throw ArgumentError("GradScaler: unscale a second time before step(); gradients are divided " +
                        std::string("by the scale once"));
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double largest =
      grad_norm(parameters, {.mesh = options_.mesh, .norm_type = kInfinity}, site);
  scale_gradients(parameters, 1.0 / scale_);
  found_ = std::isfinite(largest) ? Found::kFinite : Found::kOverflow;
}

bool GradScaler::step(Optimizer& optimizer, CallSite site) {
  if (found_ == Found::kNothing) unscale(optimizer.parameters(), site);
  const bool finite = found_ == Found::kFinite;
  found_ = Found::kNothing;
  if (!finite) {
    scale_ = std::max(kLeastScale, scale_ * options_.backoff);
    good_steps_ = 0;
    return false;
  }
  optimizer.step();
  if (++good_steps_ >= options_.growth_interval) {
    good_steps_ = 0;
    if (std::isfinite(scale_ * options_.growth)) scale_ *= options_.growth;
  }
  return true;
}

}  // namespace dtensor::optim
