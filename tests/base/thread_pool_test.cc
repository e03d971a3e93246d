#include "dtensor/base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "dtensor/base/error.h"

namespace dtensor {
namespace {

using Ranges = std::vector<std::pair<int64_t, int64_t>>;

Ranges ranges_of(ThreadPool& pool, int64_t n, int64_t grain) {
  std::mutex mutex;
  Ranges ranges;
  pool.parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    const std::lock_guard lock(mutex);
    ranges.emplace_back(begin, end);
  });
  std::ranges::sort(ranges);
  return ranges;
}

TEST(ThreadPool, RangesTileAndAreAtLeastAGrain) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t n : {0, 1, 2, 3, 7, 64, 1000}) {
      for (const int64_t grain : {1, 3, 100, 5000}) {
        const Ranges ranges = ranges_of(pool, n, grain);
        int64_t at = 0;
        for (size_t i = 0; i < ranges.size(); ++i) {
          EXPECT_EQ(ranges[i].first, at);
          at = ranges[i].second;
          const int64_t least = i + 1 < ranges.size() ? grain : 1;
          EXPECT_GE(at - ranges[i].first, least);
        }
        EXPECT_EQ(at, n);
        EXPECT_LE(ranges.size(), static_cast<size_t>(threads));
        EXPECT_EQ(ranges_of(pool, n, grain), ranges);
      }
    }
  }
}

TEST(ThreadPool, ThrowsTheFirstExceptionAndWorksOn) {
  ThreadPool pool(3);
  for (int i = 0; i < 20; ++i) {
    EXPECT_THROW(pool.parallel_for(30, 1, [](int64_t, int64_t) { throw std::runtime_error("x"); }),
                 std::runtime_error);
    std::atomic<int64_t> sum{0};
    pool.parallel_for(30, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
    EXPECT_EQ(sum, 30);
  }
}

TEST(ThreadPool, NestedCallsRunInline) {
  ThreadPool pool(2);
  std::atomic<int64_t> sum{0};
  pool.parallel_for(4, 1, [&](int64_t begin, int64_t end) {
    if (begin != 0) {
      sum += end - begin;
      return;
    }
    pool.parallel_for(end, 1, [&](int64_t b, int64_t e) { sum += e - b; });
  });
  EXPECT_EQ(sum, 4);
}

TEST(ThreadPool, RefusesNoThreads) { EXPECT_THROW(ThreadPool(0), ArgumentError); }

}  // namespace
}  // namespace dtensor
