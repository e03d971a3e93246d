// Gradient clipping over gradients of any placement.

#pragma once

#include <vector>

#include "dtensor/base/call_site.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/nn/module.h"

namespace dtensor::optim {

struct ClipOptions {
  // Of the reduction: holds every rank that holds a piece of a gradient. The mesh of the gradients
  // where not set; needed where they lie on several.
  DeviceMesh mesh = {};
  double norm_type = 2.0;  // 1, 2, or infinity
};

// Multiplies every gradient by min(1, max_norm / (norm + 1e-6)) and returns the norm over all of
// them, each element counted once whatever its placement: of copies on R dims the one at
// coordinate 0. One all-reduce of one number, whatever the placements; none on no mesh.
//   calls   every rank of the mesh, also one that holds no gradient; a rank outside gets 0
//   bits    the same on every rank; summed in double
//   list    a parameter that stands in it twice (it is tied) counts once
// PlacementError for a Partial gradient (a deferred backward was the last), for one that lies on
// ranks outside the mesh, and for one on no mesh beside others on one; nothing was changed then.
// ArgumentError for another norm_type.
double clip_grad_norm(const std::vector<nn::Parameter>& parameters, double max_norm,
                      const ClipOptions& options = {}, CallSite site = CallSite::here());

// The two halves: the norm alone, with the same all-reduce; and gradients multiplied, on each rank
// its pieces, without a message. PlacementError as above for a Partial gradient.
double grad_norm(const std::vector<nn::Parameter>& parameters, const ClipOptions& options = {},
                 CallSite site = CallSite::here());
void scale_gradients(const std::vector<nn::Parameter>& parameters, double factor);

}  // namespace dtensor::optim
