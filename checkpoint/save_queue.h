// SaveQueue: the saves of a rank that are under way, written one after the other. Internal.

#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <string>

#include "dtensor/checkpoint/save.h"

namespace dtensor::checkpoint {

struct PendingSave::State {
  std::string directory;
  std::shared_future<void> done;
  std::atomic<bool> is_told = false;  // has its error been thrown?
};

// A slot of the Context, used by its thread.
class SaveQueue {
 public:
  SaveQueue() = default;
  ~SaveQueue();  // waits: what was begun is written
  SaveQueue(const SaveQueue&) = delete;
  SaveQueue& operator=(const SaveQueue&) = delete;

  // Runs `write` on a thread of its own, after those that were pushed before. CheckpointError where
  // there is no thread: `write` is not run then.
  PendingSave push(const std::string& directory, std::function<void()> write);
  int under_way();
  // Waits until at most so many are. Throws the first error that nobody has been told.
  void wait_until_at_most(int count);

 private:
  std::deque<std::shared_ptr<PendingSave::State>> saves_;  // the oldest first
};

}  // namespace dtensor::checkpoint
