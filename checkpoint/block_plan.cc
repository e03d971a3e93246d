#include "dtensor/checkpoint/block_plan.h"

#include <algorithm>
#include <utility>

namespace dtensor::checkpoint {
namespace {

using Stretch = std::pair<int64_t, int64_t>;  // [first, second) of blocks

class Planner {
 public:
  Planner(std::span<const BlockDemand> demands, const BlockSizes& sizes)
      : demands_(demands), sizes_(sizes) {}

  std::vector<BlockWindow> run() {
    const int64_t most = std::max<int64_t>(1, sizes_.most_bytes / sizes_.block_bytes);
    for (const auto& [begin, end] : needed_blocks(demands_, sizes_.block_bytes)) {
      for (int64_t block = begin; block < end;) {
        find_demands(block);
        const int64_t direct = std::min(direct_blocks(block), end - block);
        if (direct > 0) {
          const int64_t count = std::min(direct, most);
          add(block, block + count, true);
          block += count;
        } else {
          // Joined with the blocks before it as long as they fit.
          const bool joins = !windows_.empty() && !windows_.back().direct &&
                             windows_.back().end_bytes == block * sizes_.block_bytes &&
                             block - windows_.back().begin_bytes / sizes_.block_bytes < most;
          if (joins) {
            windows_.back().end_bytes = end_of(block);
            windows_.back().last = std::max(windows_.back().last, last_);
          } else {
            add(block, block + 1, false);
          }
          ++block;
        }
      }
    }
    return std::move(windows_);
  }

 private:
  int64_t end_of(int64_t block) const {
    return std::min((block + 1) * sizes_.block_bytes, sizes_.file_bytes);
  }

  void add(int64_t block, int64_t end, bool direct) {
    windows_.push_back({block * sizes_.block_bytes, end_of(end - 1), first_, last_, direct});
  }

  // [first_, last_): the demands of chunks that have bytes in the block.
  void find_demands(int64_t block) {
    const int64_t begin = block * sizes_.block_bytes;
    const int64_t end = end_of(block);
    const auto count = static_cast<int>(demands_.size());
    const auto chunk_end = [&](int i) { return at(i).begin_bytes + at(i).size_bytes; };
    while (first_ < count && chunk_end(first_) <= begin) ++first_;
    last_ = std::max(last_, first_);
    while (last_ < count && at(last_).begin_bytes < end) ++last_;
  }

  // How many blocks from this one on lie whole inside one run of the only demand that they have.
  int64_t direct_blocks(int64_t block) const {
    const int64_t begin = block * sizes_.block_bytes;
    if (last_ - first_ != 1 || !at(first_).direct) return 0;
    const BlockDemand& d = at(first_);
    const int64_t chunk_end = d.begin_bytes + d.size_bytes;
    if (begin < d.begin_bytes || end_of(block) > chunk_end) return 0;
    const BoxRun run = d.runs.at((begin - d.begin_bytes) / d.element_bytes);
    const int64_t run_end = d.begin_bytes + (run.src + run.count) * d.element_bytes;
    if (run.count == 0 || run_end < end_of(block)) return 0;
    const int64_t reach =
        run_end - begin + (run_end == sizes_.file_bytes ? sizes_.block_bytes - 1 : 0);
    return reach / sizes_.block_bytes;
  }

  const BlockDemand& at(int i) const { return demands_[static_cast<size_t>(i)]; }

  std::span<const BlockDemand> demands_;
  BlockSizes sizes_;
  std::vector<BlockWindow> windows_;
  int first_ = 0;
  int last_ = 0;
};

}  // namespace

std::vector<Stretch> needed_blocks(std::span<const BlockDemand> demands, int64_t block_bytes) {
  std::vector<Stretch> stretches;
  for (const BlockDemand& d : demands) {
    // A gap shorter than a block leaves no block out.
    d.runs.for_each_span((block_bytes - 1) / d.element_bytes, [&](int64_t begin, int64_t end) {
      const int64_t first = (d.begin_bytes + begin * d.element_bytes) / block_bytes;
      const int64_t last = (d.begin_bytes + end * d.element_bytes - 1) / block_bytes;
      if (!stretches.empty() && stretches.back().first <= first &&
          first <= stretches.back().second) {
        stretches.back().second = std::max(stretches.back().second, last + 1);
      } else {
        stretches.emplace_back(first, last + 1);
      }
    });
  }
  std::ranges::sort(stretches);
  std::vector<Stretch> merged;
  for (const Stretch& s : stretches) {
    if (!merged.empty() && s.first <= merged.back().second) {
      merged.back().second = std::max(merged.back().second, s.second);
    } else {
      merged.push_back(s);
    }
  }
  return merged;
}

std::vector<BlockWindow> plan_blocks(std::span<const BlockDemand> demands,
                                     const BlockSizes& sizes) {
  return Planner(demands, sizes).run();
}

}  // namespace dtensor::checkpoint
