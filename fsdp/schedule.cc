#include "dtensor/fsdp/schedule.h"

#include <algorithm>
#include <utility>

#include "dtensor/fsdp/live_groups.h"

namespace dtensor::fsdp {

bool Schedule::may_start() { return LiveGroups::current()->now < kMostLiveGroups; }

void Schedule::begin_forward(std::vector<std::weak_ptr<ScheduledGroup>> groups) {
  groups_ = std::move(groups);
  order_.clear();
  cursor_ = 0;
  ahead_.reset();
  std::erase_if(tape_, [](const auto& pass) { return pass.expired(); });
}

std::shared_ptr<Pass> Schedule::take_ahead(const ScheduledGroup& group) {
  if (ahead_ == nullptr || ahead_->group.get() != &group) return nullptr;
  return std::exchange(ahead_, nullptr);
}

void Schedule::entered_forward(const std::shared_ptr<ScheduledGroup>& group) {
  order_.push_back(group);
  const auto is_group = [&](const auto& g) { return g.lock() == group; };
  const auto begin = last_order_.begin() + static_cast<std::ptrdiff_t>(cursor_);
  const auto at = std::find_if(begin, last_order_.end(), is_group);
  if (at == last_order_.end()) return;
  cursor_ = static_cast<size_t>(at - last_order_.begin()) + 1;
  if (cursor_ == last_order_.size() || ahead_ != nullptr || !may_start()) return;
  const std::shared_ptr<ScheduledGroup> next = last_order_[cursor_].lock();
  if (next == nullptr) return;
  ahead_ = next->new_pass();
  ahead_->gathered.start();
}

void Schedule::end_forward() {
  last_order_ = std::exchange(order_, {});
  cursor_ = last_order_.size();
}

void Schedule::add_to_tape(const std::shared_ptr<Pass>& pass) { tape_.push_back(pass); }

bool Schedule::on_tape(const ScheduledGroup& group) const {
  return std::ranges::any_of(tape_, [&](const auto& entry) {
    const std::shared_ptr<Pass> pass = entry.lock();
    return pass != nullptr && !pass->done && pass->group.get() == &group;
  });
}

void Schedule::flush_unmet() {
  for (const auto& entry : groups_) {
    const std::shared_ptr<ScheduledGroup> group = entry.lock();
    if (group != nullptr && !on_tape(*group)) group->flush_held();
  }
}

void Schedule::entered_backward(const std::shared_ptr<Pass>& pass) {
  in_backward_.push_back(pass);
  auto at = std::ranges::find_if(tape_, [&](const auto& entry) { return entry.lock() == pass; });
  if (at == tape_.end()) return;
  while (at != tape_.begin()) {
    const std::shared_ptr<Pass> before = (--at)->lock();
    if (before == nullptr || before->done || !before->reshards) continue;
    if (before->gathered.is_empty() && may_start()) before->gathered.start();
    return;
  }
}

void Schedule::end_backward() {
  ends_backward = false;
  in_backward_.clear();
  for (const auto& entry : tape_) {
    if (const std::shared_ptr<Pass> pass = entry.lock()) pass->gathered.release_all();
  }
  std::erase_if(tape_, [](const auto& entry) {
    const std::shared_ptr<Pass> pass = entry.lock();
    return pass == nullptr || pass->done;
  });
}

}  // namespace dtensor::fsdp
