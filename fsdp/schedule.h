// Schedule: in which order the groups of one root run, what is gathered ahead of its use, and which
// gradients are under way. Forward order is learned from the forward before; backward is the
// opposite of the forward that it belongs to; a group may name others to gather instead. Ranks that
// run their groups in different orders make different calls: a CommError (Mismatch) that names
// both, as a gather is labelled with its first parameter.

#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "dtensor/fsdp/gather_lane.h"
#include "dtensor/fsdp/pass.h"

namespace dtensor::fsdp {

// Where groups are gathered.
struct Channel {
  std::shared_ptr<const GatherLane> lane;
  std::vector<int> dims;
  friend bool operator==(const Channel&, const Channel&) = default;
};

// What is gathered and what is reduced goes over different Comms: a rank that leaves out a group
// would wait in one for a rank that waits in the other. So at the end of forward, and of backward
// before reductions are waited for, all ranks agree on the channels that they have made the same
// gathers.
class Schedule {
 public:
  // `groups`: those of the root, itself among them. overlaps: see Overlap.
  void begin_forward(std::vector<std::weak_ptr<ScheduledGroup>> groups,
                     std::vector<Channel> channels, bool overlaps);
  // The pass of a group that now runs: the one gathered ahead, if there is one.
  std::shared_ptr<Pass> take_ahead(const ScheduledGroup& group);
  // `group` is gathered and runs: issues the gather of the group that came next last time, or, in
  // a forward that is part of a backward (recomputed), of the one before.
  void entered_forward(const std::shared_ptr<ScheduledGroup>& group);
  void end_forward();
  // Frees what was gathered ahead and not used: forward is over, or threw.
  void drop_ahead();

  // A pass of the graph, in forward order.
  void add_to_tape(const std::shared_ptr<Pass>& pass);
  // Has end_backward called at the end of the backward that runs.
  static void begin_backward(const std::shared_ptr<Schedule>& schedule);
  // Keeps a pass that is to be gathered until the end of the backward: nodes inside the module
  // still read what it gathered.
  void keep(const std::shared_ptr<Pass>& pass) { in_backward_.push_back(pass); }
  // `pass` is gathered and its backward runs: issues the gather of the pass before it in the same
  // forward. Another forward's graph may be kept, and its parameters written since.
  void entered_backward(const std::shared_ptr<Pass>& pass);
  // Waits for as much of what is under way as must end first.
  void reduce(const std::function<std::unique_ptr<Reduction>()>& start);

 private:
  static bool may_start();
  void agree(std::string_view what) const;
  // The forward whose backward runs; else the last one.
  int64_t forward() const;
  bool on_tape(const ScheduledGroup& group) const;
  void forget_expired();
  void gather_ahead(const std::weak_ptr<ScheduledGroup>& group);
  // Waits for reductions, also of what deferred backwards have left and this one did not meet; but
  // where the backward threw drops them: other ranks may wait for what this one will not do any
  // more. Frees what backward left: what was gathered ahead in vain, what never got a gradient.
  void end_backward();
  void reduce_deferred();

  std::vector<std::weak_ptr<ScheduledGroup>> groups_;
  std::vector<Channel> channels_;
  std::vector<std::weak_ptr<ScheduledGroup>> last_order_;
  std::vector<std::weak_ptr<ScheduledGroup>> order_;
  size_t cursor_ = 0;  // in last_order_: behind the group that runs
  std::vector<std::shared_ptr<Pass>> ahead_;
  std::vector<std::weak_ptr<Pass>> tape_;
  std::vector<std::shared_ptr<Pass>> in_backward_;
  Reductions reductions_;
  int64_t forwards_ = 0;
  bool in_forward_ = false;  // of the root
  bool overlaps_ = true;
  bool ends_backward_ = false;
  std::exception_ptr outer_;  // handled where the backward began
};

}  // namespace dtensor::fsdp
