#include "dtensor/ops/ops.h"
#include "dtensor/ops/samples/samples.h"

namespace dtensor::ops {

using In = SampleInputs;

std::vector<OpEntry> indexing_samples() {
  return {
      {"embedding", "", {{{6, 4}}, {{3, 5}, 6, false}}, [](In x) { return embedding(x[0], x[1]); }},
  };
}

}  // namespace dtensor::ops
