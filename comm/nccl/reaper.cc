#include "dtensor/comm/nccl/reaper.h"

#include <cuda_runtime_api.h>

namespace dtensor::comm::nccl {
namespace {

constexpr std::chrono::seconds kPatience{10};
constexpr std::chrono::milliseconds kLook{1};

// True where all that was issued on it has been done.
bool finish(ncclComm_t comm) {
  ncclResult_t status = ncclCommFinalize(comm);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (status == ncclInProgress && std::chrono::steady_clock::now() < end) {
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
  const bool stopped = state_->changed.wait_for(lock, kPatience, [&] { return state_->stopped; });
  lock.unlock();
  if (stopped) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void Reaper::end(ncclComm_t comm, int device, Ending how, std::chrono::nanoseconds patience) {
  std::unique_lock lock(state_->mutex);
  state_->queue.push_back({comm, device, how});
  const int64_t mine = ++state_->taken;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, patience, [&] { return state_->ended >= mine; });
}

void Reaper::loop(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (true) {
    state->changed.wait(lock, [&] { return state->stop || !state->queue.empty(); });
    if (state->queue.empty()) break;
    const Item item = state->queue.front();
    state->queue.pop_front();
    lock.unlock();
    cudaSetDevice(item.device);
    if (item.how == Ending::kOrderly && finish(item.comm)) {
      ncclCommDestroy(item.comm);
    } else {
      ncclCommAbort(item.comm);
    }
    lock.lock();
    ++state->ended;
    state->changed.notify_all();
  }
  state->stopped = true;
  state->changed.notify_all();
}

}  // namespace dtensor::comm::nccl
