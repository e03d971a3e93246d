#include "dtensor/comm/nccl/reaper.h"

#include <cuda_runtime_api.h>

#include <utility>

namespace dtensor::comm::nccl {
namespace {

// For all orderly endings that were asked for at one time, and for aborting what is left then.
constexpr std::chrono::seconds kPatience{10};
constexpr std::chrono::seconds kAborts{5};
constexpr std::chrono::milliseconds kLook{1};

}  // namespace

// kEnded where all that was issued on it has been done. Goes on where it was left for an abort.
Reaper::Outcome Reaper::finalize(Item& item, State& state) {
  if (std::chrono::steady_clock::now() >= item.until) return Outcome::kFailed;
  ncclResult_t status = ncclInProgress;
  if (!item.begun) status = ncclCommFinalize(item.comm);
  item.begun = true;
  while (status == ncclInProgress && std::chrono::steady_clock::now() < item.until) {
    {
      std::unique_lock lock(state.mutex);
      if (state.changed.wait_for(lock, kLook, [&] { return !state.aborts.empty(); })) {
        return Outcome::kAbortWaits;
      }
    }
    if (ncclCommGetAsyncError(item.comm, &status) != ncclSuccess) return Outcome::kFailed;
  }
  return status == ncclSuccess ? Outcome::kEnded : Outcome::kFailed;
}

Reaper::Reaper() : thread_([state = state_] { loop(state); }) {}

Reaper::~Reaper() {
  std::unique_lock lock(state_->mutex);
  state_->stop = true;
  state_->changed.notify_all();
  const bool stopped =
      state_->changed.wait_for(lock, kPatience + kAborts, [&] { return state_->stopped; });
  lock.unlock();
  if (stopped) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void Reaper::abort(ncclComm_t comm, int device, std::chrono::nanoseconds patience) {
  std::unique_lock lock(state_->mutex);
  state_->aborts.push_back({.comm = comm, .device = device});
  const int64_t mine = ++state_->aborts_taken;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, patience, [&] { return state_->aborts_ended >= mine; });
}

void Reaper::finish(ncclComm_t comm, int device, std::function<void()> afterwards) {
  const std::lock_guard lock(state_->mutex);
  state_->endings.push_back(
      {comm, device, std::chrono::steady_clock::now() + kPatience, std::move(afterwards)});
  state_->changed.notify_all();
}

void Reaper::loop(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (true) {
    state->changed.wait(
        lock, [&] { return state->stop || !state->aborts.empty() || !state->endings.empty(); });
    const bool aborts = !state->aborts.empty();
    std::deque<Item>& queue = aborts ? state->aborts : state->endings;
    if (queue.empty()) break;
    Item item = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    cudaSetDevice(item.device);
    const Outcome outcome = aborts ? Outcome::kFailed : finalize(item, *state);
    if (outcome == Outcome::kEnded) ncclCommDestroy(item.comm);
    if (outcome == Outcome::kFailed) ncclCommAbort(item.comm);
    if (outcome != Outcome::kAbortWaits && item.afterwards) item.afterwards();
    lock.lock();
    if (outcome == Outcome::kAbortWaits) state->endings.push_front(std::move(item));
    if (aborts) ++state->aborts_ended;
    state->changed.notify_all();
  }
  state->stopped = true;
  state->changed.notify_all();
}

}  // namespace dtensor::comm::nccl
