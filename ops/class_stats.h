// The statistics of softmax over a dim that may be cut, for cross_entropy and softmax: what their
// communicating rows send. Internal.

#pragma once

#include "dtensor/ops/cpu/softmax.h"
#include "dtensor/tensor/dtensor.h"
#include "dtensor/tensor/move.h"

namespace dtensor::ops {

// Of which operand `rows` [...,v] are this rank's piece, its dim `dim` moved to the end.
struct ClassRows {
  const DTensor& x;
  int dim;
  const Tensor& rows;
};
// Maxima and sums of the rows over all classes: two all-reduces where the dim is cut.
cpu::SoftmaxStats class_stats(const ClassRows& of, const MoveOptions& options);

// What a kernel reduced to [...] by `op` over the local classes, over all classes.
Tensor reduce_classes(const Tensor& local, const ClassRows& of, PartialOp op,
                      const MoveOptions& options);

}  // namespace dtensor::ops
