// Layer norm and group norm.

#pragma once

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

struct LayerNormOptions {
  double eps = 1e-5;
  // Asks for the communicating row with h cut: one all-reduce of the sums, one of the squared
  // distances from the mean; backward sends two, issued together.
  bool sharded_dims = false;
};

// x [...,h], w [h], b [h] -> [...,h]: (x - mean) / sqrt(variance + eps) w + b, over each row.
// Linear in w and b jointly. w and b are of x's dtype, or f32 where x is bf16 or f16; b, or both,
// may be empty handles.
DTensor layer_norm(const DTensor& x, const DTensor& w, const DTensor& b,
                   const LayerNormOptions& options = {}, CallSite site = CallSite::here());
DTensor layer_norm(const DTensor& x, const LayerNormOptions& options = {},
                   CallSite site = CallSite::here());

// x [n,c,...], w [c], b [c] -> [n,c,...]: the same over each of `groups` equal runs of channels
// with all that lies behind them (Wu and He, "Group normalization", ECCV 2018). c may be cut
// between groups, what lies behind it not at all. w and b may be empty handles.
struct GroupNormOptions {
  int64_t groups = 1;
  double eps = 1e-5;
};
DTensor group_norm(const DTensor& x, const DTensor& w, const DTensor& b,
                   const GroupNormOptions& options, CallSite site = CallSite::here());

}  // namespace dtensor
