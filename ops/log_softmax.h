// Logarithms of softmax over the last dim.

#pragma once

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

struct LogSoftmaxOptions {
  bool sharded_classes = false;  // asks for the communicating row with v cut
};

// x [...,v] -> [...,v]: x - log(sum(exp(x))) of its row.
//   rule  ...v->...v; with v cut two all-reduces forward (maxima and sums of the rows) and one
//         backward (sums of the gradient's rows)
DTensor log_softmax(const DTensor& x, const LogSoftmaxOptions& options = {},
                    CallSite site = CallSite::here());

}  // namespace dtensor
