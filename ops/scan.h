// Running sums.

#pragma once

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// Element i is the sum of elements 0 to i of a dim, which may not be cut. Linear.
DTensor cumsum(const DTensor& a, int dim, CallSite site = CallSite::here());

}  // namespace dtensor
