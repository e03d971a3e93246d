// Choosing between values by a condition, with broadcasting from the right.

#pragma once

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// a where `condition` is not 0, else b. a and b have one dtype, the condition any. Jointly linear
// in a and b, for a condition that is R or cut alike.
DTensor where(const DTensor& condition, const DTensor& a, const DTensor& b,
              CallSite site = CallSite::here());
DTensor where(const DTensor& condition, const DTensor& a, double b,
              CallSite site = CallSite::here());
DTensor where(const DTensor& condition, double a, const DTensor& b,
              CallSite site = CallSite::here());

// The number where `mask` is not 0, else x.
DTensor masked_fill(const DTensor& x, const DTensor& mask, double number,
                    CallSite site = CallSite::here());

}  // namespace dtensor
