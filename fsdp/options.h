// Options of fully_shard. Those that a group does not give are taken from the root's.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "dtensor/base/allocator.h"
#include "dtensor/base/dtype.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/nn/module.h"

namespace dtensor::fsdp {

// What is cut over the dims (Rajbhandari et al., "ZeRO", SC 2020, section 5); each also cuts what
// those before it cut.
enum class Zero : uint8_t {
  kNothing,     // DDP: parameters stay whole, their gradients are summed by all-reduce
  kState,       // ZeRO-1: the gathered parameters stay until the optimizer has written the shards
  kGradients,   // ZeRO-2: they stay from forward until their gradients are reduced
  kParameters,  // ZeRO-3, FSDP: they are freed after forward and gathered again for backward
};

// Does communication go on while others compute? kNone is for measuring what that is worth: every
// gather and reduction is waited for where it starts.
enum class Overlap : uint8_t { kNone, kYes };

struct Options {
  std::optional<DType> param_dtype = {};   // of the gathered parameters; the parameter's own
  std::optional<DType> reduce_dtype = {};  // of gradients on the wire; param_dtype
  // Free after forward, gather again for backward. Default: true, but for the root, whose group
  // would be gathered again at once; and what `zero` says, where it is given.
  std::optional<bool> reshard_after_forward = {};
  // What stays after forward is cut over these of the dims, not over all: backward gathers over
  // them only. For a slice of dims one of which is faster than the others.
  std::optional<MeshSlice> reshard_over = {};
  std::optional<Zero> zero = {};         // kParameters
  std::optional<bool> cast_inputs = {};  // floating inputs are cast to param_dtype: true
  // Floating outputs of this module are cast to it. Of this group: the root's is the model's.
  std::optional<DType> output_dtype = {};
  // The tensor dim that is cut, per parameter; 0. Negative ones count from the end. Of this group.
  std::function<int(const nn::Parameter& parameter)> shard_dim = {};
  // Where this rank's shards and their gradients lie, the slow tier: a FileAllocator, say. The
  // Context's. Of this group.
  std::shared_ptr<Allocator> offload = {};
  std::optional<Overlap> overlap = {};  // of the root
};

}  // namespace dtensor::fsdp
