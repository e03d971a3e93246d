// Pass: one forward of a group and the backward that belongs to it. The graph keeps it alive.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "dtensor/fsdp/gathered.h"
#include "dtensor/fsdp/reduction.h"

namespace dtensor::fsdp {

class Schedule;
struct Pass;

// A group as its schedule sees it.
class ScheduledGroup {
 public:
  virtual ~ScheduledGroup() = default;
  virtual std::shared_ptr<Pass> new_pass() = 0;  // gathers nothing yet
  // Issues the reduction of what deferred backwards have left; null where there is nothing.
  virtual std::unique_ptr<Reduction> reduce_deferred() = 0;
  // Drops gradients that a backward that threw has left on their way to be reduced.
  virtual void drop_gradients() = 0;
  virtual void read_ahead() const = 0;  // shards in a slow tier
  // No use of a parameter finds its gathered form any more.
  virtual void hide_parameters() const = 0;

  // Asked for by name: gathered while this one computes, in place of the group that is next.
  std::vector<std::weak_ptr<ScheduledGroup>> forward_prefetch;
  std::vector<std::weak_ptr<ScheduledGroup>> backward_prefetch;
};

struct Pass {
  std::shared_ptr<ScheduledGroup> group;
  std::shared_ptr<Schedule> schedule;
  std::shared_ptr<Gathered> gathered;  // of several passes where it stays
  std::optional<DType> reduce_dtype;   // of gradients on the wire; those of the members
  std::vector<size_t> trainable;       // members whose gradient is wanted; the others are frozen
  std::vector<size_t> frozen;
  // By member: gradients of regions that are computed again in backward (recomputed).
  std::vector<DTensor> of_regions;
  uint32_t cut_dims = 0;   // mesh dims, as bits, on which inputs or output of the module are not R
  int64_t forward = 0;     // of the root: in which of its forwards the pass was made
  int watched_inputs = 0;  // inputs of the module that want a gradient
  int open_inputs = 0;     // those whose gradient is not complete yet
  bool reshards = false;   // freed after forward, gathered again for backward
  bool of_root = false;
  bool done = false;                            // its gradients are reduced
  std::chrono::steady_clock::time_point began;  // for a trace: forward, then backward

  void release(size_t index) const {
    if (!gathered->stays) gathered->release(index);
  }
  void release_all() const {
    if (!gathered->stays) gathered->release_all();
  }
};

}  // namespace dtensor::fsdp
