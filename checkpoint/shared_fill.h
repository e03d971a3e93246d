// SharedFill: fill() for the ranks of one host, of which each block is read by one and passed on to
// the others that need it. Internal.

#pragma once

#include <span>
#include <vector>

#include "dtensor/checkpoint/fill.h"
#include "dtensor/comm/comm.h"

namespace dtensor::checkpoint {

// A collective of `host`. `sources` are the same on all its ranks and have CRCs, what is wanted of
// them may differ. `buffer_bytes` bounds the blocks that a rank holds at once, its own and those it
// was sent; at least two blocks. bytes_read is what this rank read itself.
// CheckpointError on every rank of `host` where a block is damaged on one.
FillResult shared_fill(comm::Comm& host, std::span<const FillSource> sources,
                       std::span<const FillTarget> targets, std::vector<FillPiece> pieces,
                       int64_t buffer_bytes);

}  // namespace dtensor::checkpoint
