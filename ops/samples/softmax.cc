#include "dtensor/ops/ops.h"
#include "dtensor/ops/samples/samples.h"

namespace dtensor::ops {

using In = SampleInputs;

std::vector<OpEntry> softmax_samples() {
  return {
      {"log_softmax", "", {{{3, 5}}}, [](In x) { return log_softmax(x[0]); }},
      {"log_softmax",
       "sharded_classes",
       {{{3, 5}}},
       [](In x) { return log_softmax(x[0], {.sharded_classes = true}); }},
  };
}

}  // namespace dtensor::ops
