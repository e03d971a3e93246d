// GradScaler: loss scaling for float16 (Micikevicius et al., "Mixed precision training", ICLR 2018,
// section 3.2): the loss is multiplied, so that small gradients do not vanish in float16; gradients
// are divided before the step; a step whose gradients are not finite is left out and the scale cut.
//
//   scaler.scale(loss).backward();
//   scaler.unscale(net.parameters());                       // before clipping
//   optim::clip_grad_norm(net.parameters(), 1.0);
//   scaler.step(optimizer);                                  // or not
//   scaler.update();                                         // once, after the last optimizer
//   optimizer.zero_grad();

#pragma once

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "dtensor/base/call_site.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/nn/module.h"
#include "dtensor/optim/optimizer.h"

namespace dtensor::optim {

struct GradScalerOptions {
  double scale = 65536.0;  // at first
  double growth = 2.0;     // after growth_interval updates in a row
  double backoff = 0.5;    // after one with gradients that are not finite
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
  // number, the same answer on every rank. Every rank of the mesh calls it, once for a parameter
  // between two updates: ArgumentError a second time. PlacementError for a Partial gradient.
  void unscale(const std::vector<nn::Parameter>& parameters, CallSite site = CallSite::here());
  // Steps where all gradients that were unscaled together with some of the optimizer's were finite.
  // Unscales first those that nobody has. Did it step? ArgumentError for an optimizer that has
  // stepped, or was left out, since the last update.
  bool step(Optimizer& optimizer, CallSite site = CallSite::here());
  // Adapts the scale to what was found since the last update; scales losses anew from then on. Once
  // after the steps of all optimizers whose losses this scales. ArgumentError where nothing was
  // unscaled.
  void update();

  double current() const { return scale_; }
  // Updates with finite gradients since the scale last changed. With current() what a checkpoint
  // holds.
  int64_t good_steps() const { return good_steps_; }
  void restore(double scale, int64_t good_steps);

 private:
  // What one call of unscale found.
  struct Found {
    std::unordered_set<const void*> parameters;  // their ids
    bool finite = true;
  };
  GradScalerOptions options_;
  double scale_;
  int64_t good_steps_ = 0;
  std::vector<Found> found_;  // since the last update
  std::vector<const Optimizer*> stepped_;
};

}  // namespace dtensor::optim
