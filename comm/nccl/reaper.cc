#include "dtensor/comm/nccl/reaper.h"

#include <cuda_runtime_api.h>

#include <utility>

namespace dtensor::comm::nccl {
namespace {

// For all orderly endings that were asked for at one time, and for aborting what is left then.
constexpr std::chrono::seconds kPatience{10};
constexpr std::chrono::seconds kAborts{5};
constexpr std::chrono::milliseconds kLook{1};

// True where all that was issued on it has been done.
bool finalize(ncclComm_t comm, std::chrono::steady_clock::time_point until) {
  if (std::chrono::steady_clock::now() >= until) return false;
  ncclResult_t status = ncclCommFinalize(comm);
  while (status == ncclInProgress && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(kLook);
    if (ncclCommGetAsyncError(comm, &status) != ncclSuccess) return false;
  }
  return status == ncclSuccess;
}

}  // namespace

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
  state_->queue.push_back({.comm = comm, .device = device});
  const int64_t mine = ++state_->taken;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, patience, [&] { return state_->ended >= mine; });
}

void Reaper::finish(ncclComm_t comm, int device, std::function<void()> afterwards) {
  const std::lock_guard lock(state_->mutex);
  state_->queue.push_back(
      {comm, device, std::chrono::steady_clock::now() + kPatience, std::move(afterwards)});
  ++state_->taken;
  state_->changed.notify_all();
}

void Reaper::loop(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (true) {
    state->changed.wait(lock, [&] { return state->stop || !state->queue.empty(); });
    if (state->queue.empty()) break;
    const Item item = std::move(state->queue.front());
    state->queue.pop_front();
    lock.unlock();
    cudaSetDevice(item.device);
    if (finalize(item.comm, item.until)) {
      ncclCommDestroy(item.comm);
    } else {
      ncclCommAbort(item.comm);
    }
    if (item.afterwards) item.afterwards();
    lock.lock();
    ++state->ended;
    state->changed.notify_all();
  }
  state->stopped = true;
  state->changed.notify_all();
}

}  // namespace dtensor::comm::nccl
