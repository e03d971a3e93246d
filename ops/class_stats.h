// The statistics of softmax over a last dim that may be cut, for cross_entropy and log_softmax:
// what a communicating row sends. Internal.

#pragma once

#include <string>
#include <string_view>

#include "dtensor/ops/cpu/cross_entropy.h"
#include "dtensor/placement/placement.h"
#include "dtensor/tensor/dtensor.h"
#include "dtensor/tensor/move.h"

namespace dtensor::ops {

// Who asked: `options` go into the ledger.
struct RankReduction {
  std::string letters;  // "abv->ab": what was reduced on this rank, of which operand
  PartialOp op = PartialOp::kSum;
  MoveOptions options = {};
};

// `local`, this rank's reduction of its piece of `x`, reduced over the ranks that hold the other
// pieces. Nothing is sent where no reduced letter is cut.
Tensor reduce_over_ranks(const Tensor& local, const DTensor& x, const RankReduction& reduction);

// Maxima and sums of the rows of logits [...,v] over all classes: two all-reduces where v is cut.
cpu::SoftmaxStats class_stats(const DTensor& logits, const Tensor& local,
                              const MoveOptions& options);

}  // namespace dtensor::ops
