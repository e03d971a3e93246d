// Conversion between dtypes.

#pragma once

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// Rounded to nearest even; to an integer the fraction is dropped; to bool: is it not 0? From a
// floating type to another it passes P(sum) on (each part is rounded) and has a gradient. `a`
// itself where it has the dtype.
DTensor cast(const DTensor& a, DType dtype, CallSite site = CallSite::here());

}  // namespace dtensor
