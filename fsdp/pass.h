// Pass: one forward of a group and the backward that belongs to it. The graph keeps it alive.

#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "dtensor/fsdp/gathered.h"

namespace dtensor::fsdp {

class Schedule;
struct Pass;

// A group as its schedule sees it.
class ScheduledGroup {
 public:
  virtual ~ScheduledGroup() = default;
  virtual std::shared_ptr<Pass> new_pass() = 0;  // gathers nothing yet
  // Reduces gradients that deferred backwards have left, straight to the parameters.
  virtual void flush_held() = 0;
};

struct Pass {
  Pass(std::vector<Member> members, const DeviceMesh& mesh, Gathered::Counted counted)
      : gathered(std::move(members), mesh, counted) {}

  std::shared_ptr<ScheduledGroup> group;
  std::shared_ptr<Schedule> schedule;
  Gathered gathered;
  std::optional<DType> reduce_dtype;  // of gradients on the wire; those of the members
  std::vector<size_t> trainable;      // members whose gradient is wanted; the others are frozen
  std::vector<size_t> frozen;
  int open_inputs = 0;    // inputs of the module whose gradient is not complete yet
  bool reshards = false;  // freed after forward, gathered again for backward
  bool of_root = false;
  bool done = false;  // its gradients are reduced
};

}  // namespace dtensor::fsdp
