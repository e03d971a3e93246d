// Loops over the threads of the Context's ThreadPool.

#pragma once

#include <cstdint>

#include "dtensor/base/context.h"
#include "dtensor/base/thread_pool.h"

namespace dtensor::cpu {

// Elements that are worth a thread of their own.
inline constexpr int64_t kGrain = 32 * 1024;

// f(begin, end) over ranges that tile [0, n), each of at least `grain`. What f writes must not
// depend on where the ranges begin.
template <class F>
void parallel_for(int64_t n, int64_t grain, const F& f) {
  if (n <= 0) return;
  if (n <= grain) return f(int64_t{0}, n);
  Context::current().slot<CurrentThreadPool>().pool->parallel_for(n, grain, f);
}

// The same over `n` rows of `width` elements each.
template <class F>
void parallel_rows(int64_t n, int64_t width, const F& f) {
  parallel_for(n, 1 + kGrain / (width + 1), f);
}

}  // namespace dtensor::cpu
