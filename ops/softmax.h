// Softmax and its logarithm over one dim.

#pragma once

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

struct SoftmaxOptions {
  int dim = -1;
  // Asks for the communicating row with that dim cut: one all-reduce of the maxima, one of the
  // sums. The result is cut as x is; backward sends one all-reduce.
  bool sharded_classes = false;
};

// exp(x) / sum(exp(x)), computed with the maximum taken off. Rounded once for 16-bit types.
DTensor softmax(const DTensor& x, const SoftmaxOptions& options = {},
                CallSite site = CallSite::here());
// Its logarithm, accurate also where softmax is 0.
DTensor log_softmax(const DTensor& x, const SoftmaxOptions& options = {},
                    CallSite site = CallSite::here());

}  // namespace dtensor
