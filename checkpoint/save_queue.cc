#include "dtensor/checkpoint/save_queue.h"

#include <fmt/core.h>

#include <chrono>
#include <exception>
#include <system_error>
#include <utility>

#include "dtensor/base/error.h"

namespace dtensor::checkpoint {
namespace {

bool is_ready(const std::shared_future<void>& done) {
  return done.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

// What is not an error of this library becomes one.
void run(const std::function<void()>& write, const std::string& directory) {
  try {
    write();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    throw CheckpointError(fmt::format("save of {}: {}", directory, e.what()));
  }
}

}  // namespace

bool PendingSave::is_done() const { return state_ == nullptr || is_ready(state_->done); }

void PendingSave::wait() const {
  if (state_ == nullptr) return;
  state_->done.wait();
  state_->is_told = true;
  state_->done.get();
}

const std::string& PendingSave::directory() const {
  static const std::string none;
  return state_ == nullptr ? none : state_->directory;
}

SaveQueue::~SaveQueue() {
  for (const auto& save : saves_) save->done.wait();
}

PendingSave SaveQueue::push(const std::string& directory, std::function<void()> write) {
  auto save = std::make_shared<PendingSave::State>();
  save->directory = directory;
  auto before = saves_.empty() ? std::shared_future<void>() : saves_.back()->done;
  auto work = [before = std::move(before), write = std::move(write), directory]() mutable {
    // This function lives as long as its future: what it holds is let go here, the buffer before
    // anybody hears that the save is done.
    if (const auto earlier = std::exchange(before, {}); earlier.valid()) earlier.wait();
    run(std::exchange(write, nullptr), directory);
  };
  try {
    save->done = std::async(std::launch::async, std::move(work)).share();
  } catch (const std::system_error& e) {
    throw CheckpointError(fmt::format(
        "save_async of {}: the system has no thread for it ({}); nothing was written. Use save",
        directory, e.what()));
  }
  saves_.push_back(save);
  return PendingSave(save);
}

int SaveQueue::under_way() {
  int count = 0;
  for (const auto& save : saves_) count += is_ready(save->done) ? 0 : 1;
  return count;
}

void SaveQueue::wait_until_at_most(int count) {
  while (under_way() > count) {
    for (const auto& save : saves_) {
      if (is_ready(save->done)) continue;
      save->done.wait();
      break;
    }
  }
  while (!saves_.empty() && is_ready(saves_.front()->done)) {
    const auto save = saves_.front();
    saves_.pop_front();
    if (!save->is_told.exchange(true)) save->done.get();
  }
}

}  // namespace dtensor::checkpoint
