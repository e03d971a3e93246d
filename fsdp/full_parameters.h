// with_full_parameters: whole parameters of a sharded module, for a look or an edit (what FSDP
// users know as summon_full_params).

#pragma once

#include <cstdint>
#include <functional>

#include "dtensor/nn/module.h"
#include "dtensor/tensor/state_dict.h"

namespace dtensor::fsdp {

enum class Access : uint8_t {
  kRead,   // what is written to the tensors is lost
  kWrite,  // afterwards each rank takes its pieces out of its tensors
};

// Gathers the parameters of `module` under their names from it, on every rank, in as few calls as
// they need, and runs `f` with them: tensors of their own, in the parameters' dtypes. The memory of
// all of them at once; for a part of a model call it on that part.
//   calls    every rank of the parameters' mesh, outside forward and backward
//   kWrite   every rank writes the same values; nothing is sent. Where `f` throws nothing is
//   written
void with_full_parameters(nn::Module& module, Access access,
                          const std::function<void(const TensorMap& whole)>& f);

}  // namespace dtensor::fsdp
