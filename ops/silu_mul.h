// The gated unit of Llama's feed-forward layer, in one pass.

#pragma once

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// silu(a) b, for a and b of one shape. Linear in b.
DTensor silu_mul(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());

}  // namespace dtensor
