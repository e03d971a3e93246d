#include "dtensor/comm/lane.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/comm/work_state.h"

namespace dtensor::comm {
namespace {

// While calls keep coming, the thread looks for one that nobody waits for this often; waking it for
// every call would cost more than a small collective. After kQuiet looks without a new call it
// sleeps until it is woken.
constexpr std::chrono::microseconds kLook{200};
constexpr int kQuiet = 25;
// How long ~Comm lets calls that nobody waited for go on; the other ranks may need them.
constexpr std::chrono::seconds kDrain{10};

}  // namespace

Lane::Lane(std::shared_ptr<Backend> backend, std::string name, std::shared_ptr<Recorder> recorder)
    : backend_(std::move(backend)), name_(std::move(name)), recorder_(std::move(recorder)) {}

Lane::~Lane() { close(); }

void Lane::check_process() const {
  if (is_of_this_process()) return;
  throw Error(
      fmt::format("Comm \"{}\" is of process {}; this one was forked from it and is no rank. "
                  "Make Comms after a fork, or start programs instead",
                  name_, process_));
}

void Lane::check_alive() {
  check_process();
  if (!dead_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  throw CommError(*first_error_);
}

std::shared_ptr<WorkState> Lane::submit(Call call, OpInfo info) {
  recorder_->issue(call, info.bytes);
  auto state = std::make_shared<WorkState>(std::move(call), std::move(info), weak_from_this());
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    wake = asleep_ || !queue_.empty();  // the second in the queue: nobody waits for the first
    queue_.push_back(state);
    ++issued_;
    if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
  }
  if (wake) work_.notify_one();
  return state;
}

void Lane::loop() {
  const auto has_call = [&] { return !queue_.empty() && !running_; };
  std::unique_lock lock(mutex_);
  int quiet = kQuiet;
  while (!stop_ || !queue_.empty()) {
    if (has_call()) {
      run_first(lock);
      quiet = 0;
    } else if (quiet < kQuiet && !stop_) {
      const int64_t before = issued_;
      work_.wait_for(lock, kLook);
      quiet = issued_ == before ? quiet + 1 : 0;
    } else {
      asleep_ = true;
      work_.wait(lock, [&] { return has_call() || (stop_ && queue_.empty()); });
      asleep_ = false;
      quiet = 0;
    }
  }
}

void Lane::help(const WorkState& state) {
  check_process();
  std::unique_lock lock(mutex_);
  while (!state.ready()) {
    if (running_) {
      changed_.wait(lock);
    } else if (!queue_.empty()) {
      run_first(lock);
    } else {
      return;
    }
  }
}

void Lane::run_first(std::unique_lock<std::mutex>& lock) {
  const auto state = std::move(queue_.front());
  queue_.pop_front();
  running_ = true;
  std::optional<CommError::Fields> failure = first_error_;
  lock.unlock();
  if (!failure) {
    const auto start = std::chrono::steady_clock::now();
    recorder_->start(state->info_.sequence);
    try {
      backend_->run(state->call_);
    } catch (const CommError& e) {
      failure = e.fields();
    } catch (const std::exception& e) {
      backend_->abort(e.what());  // the other ranks would wait for this one
      failure = CommError::Fields{.culprit = backend_->rank(), .proved = true, .detail = e.what()};
    }
    if (failure) {
      failure->op = state->info_;
      failure->comm = name_;
      failure->size = backend_->size();
      failure->elapsed = std::chrono::steady_clock::now() - start;
    }
  }
  recorder_->end(state->info_.sequence, failure.has_value());
  if (failure) {
    recorder_->ended(CommError(*failure).what());
    recorder_->flush();
  }
  lock.lock();
  if (failure && !first_error_) {
    first_error_ = failure;
    dead_.store(true, std::memory_order_release);
  }
  lock.unlock();
  state->complete(std::move(failure));
  lock.lock();
  running_ = false;
  changed_.notify_all();
  if (!queue_.empty() || stop_) work_.notify_one();
}

void Lane::close() {
  std::unique_lock lock(mutex_);
  stop_ = true;
  work_.notify_one();
  const auto idle = [&] { return queue_.empty() && !running_; };
  if (!changed_.wait_for(lock, kDrain, idle)) {
    lock.unlock();
    backend_->abort("its Comm was destroyed with calls under way");
    lock.lock();
  }
  lock.unlock();
  if (thread_.joinable()) thread_.join();
}

}  // namespace dtensor::comm
