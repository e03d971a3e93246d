// The messages of communicating rows: what was reduced on this rank, reduced over the ranks that
// hold the other pieces. Internal.

#pragma once

#include <string>
#include <vector>

#include "dtensor/placement/placement.h"
#include "dtensor/tensor/dtensor.h"
#include "dtensor/tensor/move.h"

namespace dtensor::ops {

struct RankReduction {
  std::string letters;  // "abv->ab": what was reduced on this rank, of which operand
  PartialOp op = PartialOp::kSum;
  MoveOptions options = {};  // who asked: goes into the ledger
};

// `local`, this rank's reduction of its piece of `x`, over all pieces. Nothing is sent where no
// reduced letter is cut.
Tensor reduce_over_ranks(const Tensor& local, const DTensor& x, const RankReduction& reduction);
// Several, issued together. An undefined one stays so.
std::vector<Tensor> reduce_over_ranks(const std::vector<Tensor>& locals, const DTensor& x,
                                      const RankReduction& reduction);

}  // namespace dtensor::ops
