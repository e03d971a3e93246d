// RMS norm over the last dim (Zhang and Sennrich, "Root mean square layer normalization", NeurIPS
// 2019).

#pragma once

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

struct RmsNormOptions {
  double eps = 1e-5;
  // Asks for the communicating row with h cut: one all-reduce of the sums of squares; backward
  // sends one.
  bool sharded_dims = false;
};

// x [...,h], w [h] -> x / sqrt(mean(x²) + eps) * w. Linear in w. w may be f32 where x is bf16 or
// f16.
DTensor rms_norm(const DTensor& x, const DTensor& w, const RmsNormOptions& options,
                 CallSite site = CallSite::here());
DTensor rms_norm(const DTensor& x, const DTensor& w, double eps, CallSite site = CallSite::here());

}  // namespace dtensor
