// ThreadPool: the threads of one rank that share a kernel's work. One thread (the caller's) unless
// set: ranks that share a machine should not compete for its cores.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "dtensor/base/language.h"

namespace dtensor {

class ThreadPool {
 public:
  // `threads` includes the calling one; at least 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;
  // Runs f(begin, end) over disjoint ranges that tile [0, n), each of at least `grain` (but the
  // last), and returns when all are done. Ranges depend only on (n, grain, threads). The first
  // exception of f is thrown here. Called by one thread at a time; a nested call runs inline.
  void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& f);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The Context's slot.
struct CurrentThreadPool {
  std::shared_ptr<ThreadPool> pool = std::make_shared<ThreadPool>(1);
};

}  // namespace dtensor
