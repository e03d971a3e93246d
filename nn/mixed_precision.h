// mixed_precision: a module computes in another dtype than its parameters have. Parameters (and
// optimizer state) stay as they are; forward sees a cast of each, and gradients come back through
// the cast: a Partial gradient is cast up first and then summed, so the sum over ranks is in the
// parameter's dtype. Works on no mesh and on any, without fully_shard (which has param_dtype).

#pragma once

#include "dtensor/base/dtype.h"
#include "dtensor/nn/module.h"

namespace dtensor::nn {

// Parameters of `module` and floating inputs of its forward are cast to `param_dtype`. The result
// has that dtype: cast logits to f32 before the loss. A module inside may have another dtype, also
// the parameters' own. A region of forward that is computed again (recomputed) uses the same casts,
// which are kept for it. PlacementError for a module with a parameter of fully_shard;
// ArgumentError for a dtype that is not floating.
void mixed_precision(Module& module, DType param_dtype);

// Floating inputs of another dtype, cast.
Inputs cast_inputs(const Inputs& inputs, DType dtype);

}  // namespace dtensor::nn
