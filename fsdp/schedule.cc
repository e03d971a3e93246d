#include "dtensor/fsdp/schedule.h"

#include <algorithm>
#include <string>
#include <utility>

#include "dtensor/fsdp/stats.h"
#include "dtensor/tensor/autograd.h"

namespace dtensor::fsdp {
namespace {

bool in_backward() { return Context::current().slot<BackwardMode>().running; }

}  // namespace

bool Schedule::may_start() { return shared_stats()->live_groups < kMostLiveGroups; }

void Schedule::agree(std::string_view what) const {
  // By number: a rank that left out a step, after an error, is not taken for being in this one.
  const std::string label = std::string(what) + " " + std::to_string(forwards_);
  for (const Channel& channel : channels_) channel.lane->agree(channel.dims, label);
}

void Schedule::begin_forward(std::vector<std::weak_ptr<ScheduledGroup>> groups,
                             std::vector<Channel> channels, bool overlaps) {
  overlaps_ = overlaps;
  channels_ = std::move(channels);
  groups_ = std::move(groups);
  ++forwards_;
  in_forward_ = true;
  order_.clear();
  cursor_ = 0;
  ahead_.clear();
  forget_expired();
}

void Schedule::forget_expired() {
  std::erase_if(tape_, [](const auto& pass) { return pass.expired(); });
}

void Schedule::drop_ahead() {
  in_forward_ = false;
  ahead_.clear();
}

std::shared_ptr<Pass> Schedule::take_ahead(const ScheduledGroup& group) {
  const auto is_of = [&](const auto& pass) { return pass->group.get() == &group; };
  const auto at = std::ranges::find_if(ahead_, is_of);
  if (at == ahead_.end()) return nullptr;
  std::shared_ptr<Pass> pass = std::move(*at);
  ahead_.erase(at);
  return pass;
}

void Schedule::gather_ahead(const std::weak_ptr<ScheduledGroup>& group) {
  const std::shared_ptr<ScheduledGroup> next = group.lock();
  if (next == nullptr) return;
  const auto is_of = [&](const auto& pass) { return pass->group == next; };
  if (std::ranges::any_of(ahead_, is_of)) return;
  std::shared_ptr<Pass> pass = next->new_pass();
  pass->gathered->start();
  ahead_.push_back(std::move(pass));
}

void Schedule::entered_forward(const std::shared_ptr<ScheduledGroup>& group) {
  const bool again = in_backward();
  if (!again && !in_forward_) return;  // a part of the model by itself
  if (!again) order_.push_back(group);
  if (!overlaps_) return;
  const auto& named = again ? group->backward_prefetch : group->forward_prefetch;
  for (const auto& other : named) gather_ahead(other);
  if (!named.empty()) return;
  const auto is_group = [&](const auto& g) { return g.lock() == group; };
  if (again) {
    const auto at = std::ranges::find_if(last_order_, is_group);
    if (at == last_order_.end() || at == last_order_.begin() || !ahead_.empty()) return;
    const auto before = std::prev(at)->lock();
    if (before != nullptr && !on_tape(*before) && may_start()) gather_ahead(before);
    return;
  }
  const auto begin = last_order_.begin() + static_cast<std::ptrdiff_t>(cursor_);
  const auto at = std::find_if(begin, last_order_.end(), is_group);
  if (at == last_order_.end()) return;
  cursor_ = static_cast<size_t>(at - last_order_.begin()) + 1;
  if (cursor_ == last_order_.size() || !ahead_.empty() || !may_start()) return;
  gather_ahead(last_order_[cursor_]);
  if (cursor_ + 1 == last_order_.size()) return;
  if (const auto after = last_order_[cursor_ + 1].lock()) after->read_ahead();
}

void Schedule::end_forward() {
  if (in_backward()) return;
  last_order_ = std::exchange(order_, {});
  cursor_ = last_order_.size();
  drop_ahead();
  agree("end of forward");
}

int64_t Schedule::forward() const {
  return in_backward_.empty() ? forwards_ : in_backward_.front()->forward;
}

void Schedule::add_to_tape(const std::shared_ptr<Pass>& pass) {
  if (!in_forward_) forget_expired();
  pass->forward = forward();
  tape_.push_back(pass);
}

bool Schedule::on_tape(const ScheduledGroup& group) const {
  return std::ranges::any_of(tape_, [&](const auto& entry) {
    const std::shared_ptr<Pass> pass = entry.lock();
    return pass != nullptr && !pass->done && pass->forward == forward() &&
           pass->group.get() == &group;
  });
}

void Schedule::begin_backward(const std::shared_ptr<Schedule>& schedule) {
  if (schedule->ends_backward_) return;
  schedule->ends_backward_ = true;
  schedule->outer_ = std::current_exception();
  on_backward_end([schedule] { schedule->end_backward(); });
}

void Schedule::reduce_deferred() {
  if (Context::current().slot<BackwardMode>().defer) return;
  for (const auto& entry : groups_) {
    const std::shared_ptr<ScheduledGroup> group = entry.lock();
    if (group != nullptr) reduce([&] { return group->reduce_deferred(); });
  }
}

void Schedule::entered_backward(const std::shared_ptr<Pass>& pass) {
  if (!overlaps_) return;
  for (const auto& named : pass->group->backward_prefetch) {
    const auto is_of = [&](const auto& entry) {
      const std::shared_ptr<Pass> other = entry.lock();
      return other != nullptr && !other->done && other->forward == pass->forward &&
             other->group == named.lock();
    };
    const auto at = std::find_if(tape_.rbegin(), tape_.rend(), is_of);
    if (at != tape_.rend()) at->lock()->gathered->start();
  }
  if (!pass->group->backward_prefetch.empty()) return;
  auto at = std::ranges::find_if(tape_, [&](const auto& entry) { return entry.lock() == pass; });
  if (at == tape_.end()) return;
  while (at != tape_.begin()) {
    const std::shared_ptr<Pass> before = (--at)->lock();
    if (before == nullptr || before->done || !before->reshards) continue;
    if (before->forward != pass->forward) break;
    if (before->gathered->is_empty() && may_start()) before->gathered->start();
    break;
  }
  if (at == tape_.begin()) return;
  if (const std::shared_ptr<Pass> after = std::prev(at)->lock()) after->group->read_ahead();
}

void Schedule::reduce(const std::function<std::unique_ptr<Reduction>()>& start) {
  reductions_.make_room();
  if (auto reduction = start()) reductions_.add(std::move(reduction));
  if (!overlaps_) reductions_.finish();
}

void Schedule::end_backward() {
  ends_backward_ = false;
  const bool threw = std::current_exception() != std::exchange(outer_, nullptr);
  std::exception_ptr error;  // the first one here
  const auto attempt = [&](const auto& f) {
    try {
      f();
    } catch (...) {
      if (error == nullptr) error = std::current_exception();
    }
  };
  for (const auto& pass : std::exchange(in_backward_, {})) {
    pass->group->hide_parameters();
    attempt([&] { pass->release_all(); });
  }
  ahead_.clear();
  for (const auto& entry : tape_) {
    const std::shared_ptr<Pass> pass = entry.lock();
    if (pass != nullptr) attempt([&] { pass->release_all(); });
  }
  std::erase_if(tape_, [](const auto& entry) {
    const std::shared_ptr<Pass> pass = entry.lock();
    return pass == nullptr || pass->done;
  });
  if (!threw && error == nullptr) {
    attempt([&] {
      reduce_deferred();
      agree("end of backward");
      reductions_.finish();
    });
  }
  if (!threw && error == nullptr) return;
  reductions_ = Reductions();
  for (const auto& entry : groups_) {
    if (const std::shared_ptr<ScheduledGroup> group = entry.lock()) group->drop_gradients();
  }
  if (!threw) std::rethrow_exception(error);
}

}  // namespace dtensor::fsdp
