// RMS norm (Zhang and Sennrich, "Root mean square layer normalization", NeurIPS 2019).

#pragma once

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// x [...,h], w [h]: x / sqrt(mean(x²) + eps) * w. w has x's dtype, or is f32 beside a bf16 x.
//   rule  ...h,h->...h, h may not be cut; linear in w. The gradient of w is P(sum) over cut dims.
DTensor rms_norm(const DTensor& x, const DTensor& w, double eps, CallSite site = CallSite::here());

}  // namespace dtensor
