// GradScaler: loss scaling for float16 (Micikevicius et al., "Mixed precision training", ICLR 2018,
// section 3.2): the loss is multiplied, so that small gradients do not vanish in float16; gradients
// are divided before the step; a step whose gradients are not finite is left out and the scale cut.
//
//   scaler.scale(loss).backward();
//   scaler.unscale(net.parameters());                       // before clipping
//   optim::clip_grad_norm(net.parameters(), 1.0);
//   scaler.step(optimizer);                                  // or not
//   optimizer.zero_grad();

#pragma once

#include <cstdint>
#include <vector>

#include "dtensor/base/call_site.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/nn/module.h"
#include "dtensor/optim/optimizer.h"

namespace dtensor::optim {

struct GradScalerOptions {
  double scale = 65536.0;  // at first
  double growth = 2.0;     // after growth_interval steps in a row
  double backoff = 0.5;    // after a step that was left out
  int64_t growth_interval = 2000;
  // Holds every rank that holds a piece of a gradient; that of the gradients where not set. Needed
  // where they lie on several.
  DeviceMesh mesh = {};
};

class GradScaler {
 public:
  // ArgumentError for a scale that is not positive, growth below 1 or backoff outside (0, 1].
  explicit GradScaler(const GradScalerOptions& options = {});

  DTensor scale(const DTensor& loss) const;
  // Divides the gradients by the scale and finds out whether all are finite: one all-reduce of one
  // number, the same answer on every rank. Every rank of the mesh calls it, once between two
  // updates: ArgumentError a second time. PlacementError for a Partial gradient.
  void unscale(const std::vector<nn::Parameter>& parameters, CallSite site = CallSite::here());
  // Steps where all gradients were finite, and adapts the scale. Unscales first where nobody has.
  // Did it step?
  bool step(Optimizer& optimizer, CallSite site = CallSite::here());

  double current() const { return scale_; }
  // Finite steps since the scale last changed. With current() what a checkpoint holds.
  int64_t good_steps() const { return good_steps_; }
  void restore(double scale, int64_t good_steps);

 private:
  enum class Found : uint8_t { kNothing, kFinite, kOverflow };  // kNothing: not looked yet
  GradScalerOptions options_;
  double scale_;
  int64_t good_steps_ = 0;
  Found found_ = Found::kNothing;
};

}  // namespace dtensor::optim
