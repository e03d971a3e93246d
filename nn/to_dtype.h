// to_dtype: the parameters themselves become of another dtype, as to run a model in bf16 with half
// the memory. Training keeps parameters in f32 and computes in bf16: nn/mixed_precision.h.

#pragma once

#include "dtensor/base/dtype.h"
#include "dtensor/nn/module.h"

namespace dtensor::nn {

// Rounds every floating parameter of `module` to nearest, in memory of its own; names, placements
// and requires_grad stay, gradients are dropped, buffers stay as they are. Before or after they are
// placed on a mesh, or get memory (DeferredInit); before an optimizer is made of them.
// PlacementError for a module with a parameter of fully_shard; ArgumentError for a dtype that is
// not floating.
void to_dtype(Module& module, DType dtype);

}  // namespace dtensor::nn
