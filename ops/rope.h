// Rotary position embedding (Su et al., "RoFormer", 2021), halves rotated as in Hugging Face's
// Llama.

#pragma once

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// x [b,t,...,d] with tables cos, sin [t,d] of the same t: x cos + [-x2, x1] sin, with x = [x1, x2]
// cut in the middle of the last dim. The tables get no gradient; they have x's dtype, or are f32
// beside a bf16 or f16 x.
//   rule  bt...d,td,td->bt...d: d may not be cut; a cut t slices R tables silently. Linear in x.
DTensor rope(const DTensor& x, const DTensor& cos, const DTensor& sin,
             CallSite site = CallSite::here());

}  // namespace dtensor
