#include "dtensor/base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/base/patience.h"
#include "dtensor/base/process.h"

namespace dtensor {

namespace {

// Loops of a few microseconds follow each other closely: to sleep between them would take longer
// than they do. About 20 us, then who waits sleeps.
constexpr int64_t kSpins = 1000;

template <class F>
bool spin_until(const F& holds) {
  for (Patience patience(kSpins); patience.spins(); patience.pause()) {
    if (holds()) return true;
  }
  return false;
}

}  // namespace

struct ThreadPool::State {
  const int64_t process = internal::process_id();
  std::mutex mutex;
  std::condition_variable work;
  std::condition_variable done;
  // Written by the caller before `round`, and not again until `pending` is 0.
  const std::function<void(int64_t, int64_t)>* job = nullptr;
  int64_t n = 0;
  int64_t step = 1;
  // Written under the mutex, so that no sleeper misses them.
  std::atomic<uint64_t> round = 0;
  std::atomic<int> pending = 0;
  std::atomic<bool> stop = false;
  std::exception_ptr failure;  // guarded by mutex

  std::vector<std::thread> workers;
  bool busy = false;  // of the calling thread only

  // Not in a process that was forked.
  bool has_threads() const { return process == internal::process_id(); }

  void end() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    work.notify_all();
    for (auto& worker : workers) worker.join();
  }

  void run_part(int part) {
    const int64_t begin = std::min(n, step * part);
    const int64_t end = std::min(n, begin + step);
    if (begin < end) (*job)(begin, end);
  }

  void loop(int part) {
    uint64_t seen = 0;
    const auto called = [&] { return stop || round != seen; };
    while (true) {
      if (!spin_until(called)) {
        std::unique_lock lock(mutex);
        work.wait(lock, called);
      }
      if (stop) return;
      seen = round;
      std::exception_ptr thrown;
      try {
        run_part(part);
      } catch (...) {
        thrown = std::current_exception();
      }
      const std::lock_guard lock(mutex);
      if (thrown && !failure) failure = thrown;
      if (--pending == 0) done.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  if (threads < 1) {
    throw ArgumentError("ThreadPool: " + std::to_string(threads) + " threads; give 1 or more");
  }
  for (int i = 1; i < threads; ++i) {
    try {
      state_->workers.emplace_back([s = state_.get(), i] { s->loop(i); });
    } catch (const std::exception& e) {  // no thread, or no memory for its handle
      state_->end();
      throw Error("ThreadPool: thread " + std::to_string(i + 1) + " of " + std::to_string(threads) +
                  " could not be started (" + e.what() + "); give fewer");
    }
  }
}

ThreadPool::~ThreadPool() {
  if (state_->has_threads()) {
    state_->end();
  } else {
    internal::keep_forever(std::shared_ptr<State>(std::move(state_)));
  }
}

int ThreadPool::threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::parallel_for(int64_t n, int64_t grain,
                              const std::function<void(int64_t, int64_t)>& f) {
  if (n <= 0) return;
  State& s = *state_;
  const int64_t parts = std::clamp<int64_t>(n / std::max<int64_t>(grain, 1), 1, threads());
  if (parts == 1 || s.busy || !s.has_threads()) return f(0, n);
  s.busy = true;
  {
    const std::lock_guard lock(s.mutex);
    s.job = &f;
    s.n = n;
    s.step = (n + parts - 1) / parts;
    s.pending = threads() - 1;
    s.failure = nullptr;
    ++s.round;
  }
  s.work.notify_all();
  std::exception_ptr thrown;
  try {
    s.run_part(0);
  } catch (...) {
    thrown = std::current_exception();
  }
  const auto is_done = [&] { return s.pending == 0; };
  spin_until(is_done);
  std::unique_lock lock(s.mutex);
  s.done.wait(lock, is_done);
  s.busy = false;
  if (!thrown) thrown = s.failure;
  lock.unlock();
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace dtensor
