// Variance and standard deviation over chosen dims (none: all of them).

#pragma once

#include "dtensor/ops/dims.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor {

struct VarOptions {
  KeepDims keep = KeepDims::kNo;
  // Divides by the global count less this: 1 for an estimate from a sample, 0 for the population.
  double correction = 1.0;
  // Asks for the communicating row with a reduced dim cut: one all-reduce of the sums, one of the
  // squared distances from the mean. The result is R there.
  bool sharded_dims = false;
};

DTensor var(const DTensor& a, const Dims& dims = {}, const VarOptions& options = {},
            CallSite site = CallSite::here());
// The root of it (`std` is taken). The gradient is 0 where it is 0.
DTensor stddev(const DTensor& a, const Dims& dims = {}, const VarOptions& options = {},
               CallSite site = CallSite::here());

}  // namespace dtensor
