#include "dtensor/optim/grad_scaler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

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
  found_.clear();
  stepped_.clear();
}

DTensor GradScaler::scale(const DTensor& loss) const { return mul(loss, scale_); }

void GradScaler::unscale(const std::vector<nn::Parameter>& parameters, CallSite site) {
  Found found;
  for (const nn::Parameter& p : parameters) {
    for (const Found& before : found_) {
      if (!before.parameters.contains(p.id())) continue;
      throw ArgumentError("GradScaler: unscale \"" + p.name() +
                          "\" a second time before update(); gradients are divided by the scale "
                          "once");
    }
    found.parameters.insert(p.id());
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double largest =
      grad_norm(parameters, {.mesh = options_.mesh, .norm_type = kInfinity}, site);
  scale_gradients(parameters, 1.0 / scale_);
  found.finite = std::isfinite(largest);
  found_.push_back(std::move(found));
}

bool GradScaler::step(Optimizer& optimizer, CallSite site) {
  if (std::ranges::find(stepped_, &optimizer) != stepped_.end()) {
    throw ArgumentError(
        "GradScaler: step of the same optimizer a second time; call update() after "
        "the steps of all optimizers");
  }
  const auto found_with = [&](const nn::Parameter& p) {
    return std::ranges::find_if(found_,
                                [&](const Found& f) { return f.parameters.contains(p.id()); });
  };
  std::vector<nn::Parameter> left;
  for (const nn::Parameter& p : optimizer.parameters()) {
    if (found_with(p) == found_.end()) left.push_back(p);
  }
  if (!left.empty() || found_.empty()) unscale(left, site);
  stepped_.push_back(&optimizer);
  const bool finite = std::ranges::all_of(
      optimizer.parameters(), [&](const nn::Parameter& p) { return found_with(p)->finite; });
  if (finite) optimizer.step();
  return finite;
}

void GradScaler::update() {
  if (found_.empty()) {
    throw ArgumentError("GradScaler: update() where no gradient was unscaled; call step() first");
  }
  const bool finite = std::ranges::all_of(found_, [](const Found& f) { return f.finite; });
  found_.clear();
  stepped_.clear();
  if (!finite) {
    scale_ = std::max(kLeastScale, scale_ * options_.backoff);
    good_steps_ = 0;
    return;
  }
  if (++good_steps_ >= options_.growth_interval) {
    good_steps_ = 0;
    if (std::isfinite(scale_ * options_.growth)) scale_ *= options_.growth;
  }
}

}  // namespace dtensor::optim
