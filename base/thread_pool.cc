#include "dtensor/base/thread_pool.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/base/error.h"

namespace dtensor {

struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable work;
  std::condition_variable done;
  // Guarded by mutex.
  const std::function<void(int64_t, int64_t)>* job = nullptr;
  int64_t n = 0;
  int64_t step = 1;
  uint64_t round = 0;
  int pending = 0;
  bool stop = false;
  std::exception_ptr failure;

  std::vector<std::thread> workers;
  bool busy = false;  // of the calling thread only

  void run_part(int part) {
    const int64_t begin = std::min(n, step * part);
    const int64_t end = std::min(n, begin + step);
    if (begin < end) (*job)(begin, end);
  }

  void loop(int part) {
    uint64_t seen = 0;
    std::unique_lock lock(mutex);
    while (true) {
      work.wait(lock, [&] { return stop || round != seen; });
      if (stop) return;
      seen = round;
      lock.unlock();
      std::exception_ptr thrown;
      try {
        run_part(part);
      } catch (...) {
        thrown = std::current_exception();
      }
      lock.lock();
      if (thrown && !failure) failure = thrown;
      if (--pending == 0) done.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  if (threads < 1) {
    throw ArgumentError("ThreadPool: " + std::to_string(threads) + " threads; give 1 or more");
  }
  for (int i = 1; i < threads; ++i)
    state_->workers.emplace_back([s = state_.get(), i] { s->loop(i); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->work.notify_all();
  for (auto& worker : state_->workers) worker.join();
}

int ThreadPool::threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::parallel_for(int64_t n, int64_t grain,
                              const std::function<void(int64_t, int64_t)>& f) {
  if (n <= 0) return;
  State& s = *state_;
  const int64_t parts = std::clamp<int64_t>(n / std::max<int64_t>(grain, 1), 1, threads());
  if (parts == 1 || s.busy) return f(0, n);
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
  std::unique_lock lock(s.mutex);
  s.done.wait(lock, [&] { return s.pending == 0; });
  s.busy = false;
  if (!thrown) thrown = s.failure;
  lock.unlock();
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace dtensor
