// Vector norms over chosen dims (none: all of them).

#pragma once

#include "dtensor/ops/dims.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor {

struct NormOptions {
  // 1: sum of magnitudes, P(sum) over a cut dim. 2: root of the sum of squares. Infinity: the
  // largest magnitude, P(max) over a cut dim. ArgumentError for others.
  double p = 2.0;
  KeepDims keep = KeepDims::kNo;
  // For p = 2 asks for the communicating row with a reduced dim cut: one all-reduce of the sums of
  // squares. The result is R there.
  bool sharded_dims = false;
};

// The gradient is 0 where the norm is.
DTensor norm(const DTensor& a, const Dims& dims = {}, const NormOptions& options = {},
             CallSite site = CallSite::here());

}  // namespace dtensor
