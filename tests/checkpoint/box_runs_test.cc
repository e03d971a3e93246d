// Runs lie where a plain loop over indices says.

#include "dtensor/checkpoint/box_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace dtensor::checkpoint {
namespace {

// Every run of every part of a box, against a plain loop over indices.
TEST(BoxRuns, CoverThePartInBothArrays) {
  const Box src{{1, 2, 3}, {4, 3, 5}};
  const Box dst{{0, 2, 1}, {6, 4, 9}};
  const std::vector<Box> parts = {src,
                                  {{1, 2, 3}, {4, 3, 2}},
                                  {{2, 3, 4}, {2, 1, 3}},
                                  {{1, 2, 3}, {0, 3, 5}},
                                  {{4, 2, 3}, {1, 3, 5}}};
  for (const Box& part : parts) {
    for (const Box& into : {dst, src, part}) {
      const bool fits = intersect(part, into) == part || part.empty();
      ASSERT_TRUE(fits);
      const auto at = [](const Box& box, int64_t i, int64_t j, int64_t k) {
        return ((i - box.offset[0]) * box.size[1] + j - box.offset[1]) * box.size[2] + k -
               box.offset[2];
      };
      std::vector<std::pair<int64_t, int64_t>> want;
      for (int64_t i = part.offset[0]; i < part.offset[0] + part.size[0]; ++i) {
        for (int64_t j = part.offset[1]; j < part.offset[1] + part.size[1]; ++j) {
          for (int64_t k = part.offset[2]; k < part.offset[2] + part.size[2]; ++k) {
            want.emplace_back(at(src, i, j, k), at(into, i, j, k));
          }
        }
      }
      const BoxRuns runs(part, src, into);
      const auto collect = [&](int64_t begin, int64_t end) {
        std::vector<std::pair<int64_t, int64_t>> got;
        runs.for_each_in(begin, end, [&](const BoxRun& run) {
          for (int64_t i = 0; i < run.count; ++i) got.emplace_back(run.src + i, run.dst + i);
        });
        return got;
      };
      EXPECT_EQ(collect(0, src.numel()), want);
      std::mt19937 random(11);
      for (int i = 0; i < 50; ++i) {
        const auto begin = static_cast<int64_t>(random() % 61);
        const auto end = static_cast<int64_t>(random() % 61);
        auto some = want;
        std::erase_if(some, [&](const auto& p) { return p.first < begin || p.first >= end; });
        EXPECT_EQ(collect(begin, end), some);
      }
      for (int64_t e = 0; e < src.numel(); ++e) {
        const auto it = std::ranges::find(want, e, &std::pair<int64_t, int64_t>::first);
        const BoxRun run = runs.at(e);
        EXPECT_EQ(run.count > 0, it != want.end());
        if (run.count > 0) {
          EXPECT_EQ(run.dst, it->second);
        }
      }
      for (const int64_t gap : {0, 1, 4, 100}) {
        std::vector<bool> in(static_cast<size_t>(src.numel()));
        int64_t before = -1;
        runs.for_each_span(gap, [&](int64_t first, int64_t last) {
          EXPECT_GT(first, before);
          before = last;
          for (int64_t e = first; e < last; ++e) in[static_cast<size_t>(e)] = true;
        });
        for (const auto& [e, to] : want) EXPECT_TRUE(in[static_cast<size_t>(e)]);
        int64_t widest = 0;  // of what is taken in without need
        int64_t width = 0;
        for (int64_t e = 0; e < src.numel(); ++e) {
          const bool needed =
              std::ranges::find(want, e, &std::pair<int64_t, int64_t>::first) != want.end();
          width = in[static_cast<size_t>(e)] && !needed ? width + 1 : 0;
          widest = std::max(widest, width);
        }
        EXPECT_LE(widest, gap);
      }
    }
  }
  int scalars = 0;
  BoxRuns({}, {}, {}).for_each_in(0, 1, [&](const BoxRun& run) {
    EXPECT_EQ(run.count, 1);
    ++scalars;
  });
  EXPECT_EQ(scalars, 1);
}

TEST(BoxRuns, ContiguousPartsAreOneRun) {
  int count = 0;
  const Box whole{{0, 0, 0}, {4, 3, 5}};
  BoxRuns({{1, 0, 0}, {2, 3, 5}}, whole, whole)
      .for_each_in(0, whole.numel(), [&](const BoxRun& run) {
        ++count;
        EXPECT_EQ(run.src, 15);
        EXPECT_EQ(run.count, 30);
      });
  EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace dtensor::checkpoint
