// Lane: runs the calls of one Comm in the order of issue. A thread does it in the background; a
// waiter who comes before that thread has taken the call runs it itself, so that a call that is
// waited for at once costs no change of thread.

#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "dtensor/base/process.h"
#include "dtensor/comm/backend.h"
#include "dtensor/comm/comm_error.h"
#include "dtensor/comm/recorder.h"

namespace dtensor::comm {

class WorkState;

// Thread-safe.
class Lane : public std::enable_shared_from_this<Lane> {
 public:
  Lane(std::shared_ptr<Backend> backend, std::string name, std::shared_ptr<Recorder> recorder);
  ~Lane();

  // A process that is forked has no part in the Comm: its connections, and the ranks' memory, are
  // those of the process that forked.
  bool is_of_this_process() const { return process_ == dtensor::internal::process_id(); }
  // Throws the Comm's first error where it is dead; Error in a forked process.
  void check_alive();
  std::shared_ptr<WorkState> submit(Call call, OpInfo info);
  // Runs the calls up to `state` on this thread, unless another thread is at it; then waits for
  // that one. Returns when `state` is complete. Error in a forked process.
  void help(const WorkState& state);
  // Lets calls that are under way finish for a while, then aborts them; ends the thread.
  void close();

 private:
  void check_process() const;
  void loop();
  // Takes the first call and runs it. With `lock` held on entry and exit, released in between.
  void run_first(std::unique_lock<std::mutex>& lock);

  const int64_t process_ = dtensor::internal::process_id();
  const std::shared_ptr<Backend> backend_;
  const std::string name_;
  const std::shared_ptr<Recorder> recorder_;

  std::mutex mutex_;
  std::condition_variable work_;     // for the thread: there is a call to run, or the end
  std::condition_variable changed_;  // for waiters: a run has ended
  // Guarded by mutex_.
  std::deque<std::shared_ptr<WorkState>> queue_;
  bool running_ = false;  // some thread runs a call
  bool asleep_ = false;   // the thread, until it is notified
  int64_t issued_ = 0;    // calls so far
  bool stop_ = false;
  std::optional<CommError::Fields> first_error_;

  std::atomic<bool> dead_{false};
  std::thread thread_;  // started by the first call
};

}  // namespace dtensor::comm
