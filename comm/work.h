// Work: an operation under way. Copying copies a handle. Works of one Comm complete in the order
// in which they were issued.

#pragma once

#include <memory>

#include "dtensor/comm/types.h"

namespace dtensor::comm {

class WorkState;  // dtensor/comm/work_state.h

class Work {
 public:
  Work() = default;  // complete from the start
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}

  // Without blocking: has the operation ended, well or not?
  bool ready() const;
  // Returns when the operation is complete and its outputs are written; throws its CommError.
  // After a throw nothing is written to the buffers any more. May be called again.
  void wait();
  // Orders a device's stream after this operation; on the CPU the same as wait().
  void wait_on(Stream stream);
  OpInfo info() const;

 private:
  std::shared_ptr<WorkState> state_;  // keeps the owners of both buffers alive
};

}  // namespace dtensor::comm
