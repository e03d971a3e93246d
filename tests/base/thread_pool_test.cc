#include "dtensor/base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/tests/support/forked.h"
#include "dtensor/tests/support/sanitized.h"

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

// Of the threads a forked process has only the one that forked.
TEST(ThreadPool, AForkedProcessDoesAllTheWorkItself) {
  auto pool = std::make_unique<ThreadPool>(3);
  EXPECT_EQ(ranges_of(*pool, 9, 1).size(), 3U);
  EXPECT_EQ(testing::status_of_fork([&] {
              const Ranges ranges = ranges_of(*pool, 9, 1);
              pool.reset();
              return ranges == Ranges{{0, 9}} ? 0 : 1;
            }),
            0);
  EXPECT_EQ(ranges_of(*pool, 9, 1).size(), 3U);
}

TEST(ThreadPool, RefusesNoThreads) { EXPECT_THROW(ThreadPool(0), ArgumentError); }

// In a process of its own, that may map no more memory: a thread needs a stack.
TEST(ThreadPoolDeathTest, ThatCannotStartAllItsThreadsIsAnError) {
  if (testing::kSanitized) GTEST_SKIP() << "a sanitizer maps memory of its own";
  const auto with_no_room = [] {
    const rlimit limit{1 << 28, 1 << 28};
    setrlimit(RLIMIT_AS, &limit);
    try {
      const ThreadPool pool(100000);
    } catch (const Error& e) {
      std::fputs(e.what(), stderr);
      ThreadPool small(2);  // the others are gone, with their stacks
      std::exit(ranges_of(small, 4, 1).size() == 2 ? 0 : 1);
    }
    std::exit(1);
  };
  EXPECT_EXIT(with_no_room(), ::testing::ExitedWithCode(0), "of 100000 could not be started");
}

}  // namespace
}  // namespace dtensor
