// BlockPlan: which stretches of a file are read, and what of each goes where. A file is read in
// blocks, every needed block once; blocks that lie whole inside a run of one destination are read
// straight into it, the others through a bounded buffer. Pure: reads nothing. Internal.

#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "dtensor/checkpoint/box_runs.h"

namespace dtensor::checkpoint {

// What is taken from one chunk of a file.
struct BlockDemand {
  int64_t begin_bytes = 0;  // of the chunk, from byte 0 of the file
  int64_t size_bytes = 0;   // of the chunk; demands of chunks that overlap have equal ones
  int64_t element_bytes = 1;
  BoxRuns runs;
  bool direct = false;  // may bytes be read straight into the destination?
};

struct BlockWindow {
  int64_t begin_bytes = 0;  // of the file, at the beginning of a block
  int64_t end_bytes = 0;    // at the end of a block, or of the file
  int first = 0;            // the demands that may have a part in it: [first, last)
  int last = 0;
  bool direct = false;  // it lies whole inside one run of demand `first`
};

struct BlockSizes {
  int64_t file_bytes = 0;
  int64_t block_bytes = 0;
  int64_t most_bytes = 0;  // of a window; at least a block is taken
};

// The blocks that some demand has an element in, as [first, second), ascending.
std::vector<std::pair<int64_t, int64_t>> needed_blocks(std::span<const BlockDemand> demands,
                                                       int64_t block_bytes);

// `demands` by begin_bytes. Windows ascend and do not overlap.
std::vector<BlockWindow> plan_blocks(std::span<const BlockDemand> demands, const BlockSizes& sizes);

}  // namespace dtensor::checkpoint
