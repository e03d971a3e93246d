// Schedule: in which order the groups of one root run, and what is gathered ahead of its use.
// Forward order is learned from the forward before; backward is the opposite of the forward that
// it belongs to. Ranks that run their groups in different orders make different calls: a CommError
// (Mismatch) that names both, as a gather is labelled with its first parameter.

#pragma once

#include <memory>
#include <vector>

#include "dtensor/fsdp/pass.h"

namespace dtensor::fsdp {

class Schedule {
 public:
  // `groups`: those of the root, itself among them.
  void begin_forward(std::vector<std::weak_ptr<ScheduledGroup>> groups);
  // The pass of a group that now runs: the one gathered ahead, if it is this group's.
  std::shared_ptr<Pass> take_ahead(const ScheduledGroup& group);
  // `group` is gathered and runs: issues the gather of the group that came next last time.
  void entered_forward(const std::shared_ptr<ScheduledGroup>& group);
  void end_forward();
  // Frees what was gathered ahead and not used: forward is over, or threw.
  void drop_ahead() { ahead_.reset(); }

  // A pass of the graph, in forward order.
  void add_to_tape(const std::shared_ptr<Pass>& pass);
  // What deferred backwards have left in groups that no pass of the graph belongs to, so that this
  // backward would not meet it, is reduced.
  void flush_unmet();
  // `pass` is gathered and its backward runs: issues the gather of the pass before it. Keeps the
  // pass until the end of the backward: nodes inside the module still read what it gathered.
  void entered_backward(const std::shared_ptr<Pass>& pass);
  // Frees what backward left: what was gathered ahead in vain, what never got a gradient.
  void end_backward();

  bool ends_backward = false;  // end_backward is called at the end of the backward that runs

 private:
  static bool may_start();
  bool on_tape(const ScheduledGroup& group) const;

  std::vector<std::weak_ptr<ScheduledGroup>> groups_;
  std::vector<std::weak_ptr<ScheduledGroup>> last_order_;
  std::vector<std::weak_ptr<ScheduledGroup>> order_;
  size_t cursor_ = 0;  // in last_order_: behind the group that runs
  std::shared_ptr<Pass> ahead_;
  std::vector<std::weak_ptr<Pass>> tape_;
  std::vector<std::shared_ptr<Pass>> in_backward_;
};

}  // namespace dtensor::fsdp
