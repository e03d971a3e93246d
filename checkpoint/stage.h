// Stage: memory that a save is copied into, so that the tensors may change while it is written.
// Two buffers per Context, made when first needed and used again. Internal.

#pragma once

#include <array>
#include <memory>

#include "dtensor/checkpoint/save_plan.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::checkpoint {

class Stage {
 public:
  static constexpr int kBuffers = 2;

  // Copies what the plan's files are made of into a buffer that is free, and makes the plan write
  // that. The buffer is in use while the plan lives. InternalError where none is free.
  void take(SavePlan& plan);
  // Gives back the memory of the buffers that are free.
  void release();

 private:
  struct Buffer {
    Tensor memory;  // bytes
    std::weak_ptr<void> use;
  };
  std::array<Buffer, kBuffers> buffers_;
};

}  // namespace dtensor::checkpoint
