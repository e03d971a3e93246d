// log(sum(exp(a))) over chosen dims (none: all of them), without overflow.

#pragma once

#include "dtensor/ops/dims.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor {

struct LogSumExpOptions {
  KeepDims keep = KeepDims::kNo;
  // Asks for the communicating row with a reduced dim cut: one all-reduce of the maxima, one of the
  // sums. The result is R there.
  bool sharded_dims = false;
};

// -inf over no elements.
DTensor logsumexp(const DTensor& a, const Dims& dims = {}, const LogSumExpOptions& options = {},
                  CallSite site = CallSite::here());

}  // namespace dtensor
