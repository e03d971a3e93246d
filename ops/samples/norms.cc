#include "dtensor/ops/ops.h"
#include "dtensor/ops/samples/samples.h"

namespace dtensor::ops {

using In = SampleInputs;

std::vector<OpEntry> norm_samples() {
  return {
      {"rms_norm", "", {{{3, 5, 4}}, {{4}}}, [](In x) { return rms_norm(x[0], x[1], 1e-5); }},
  };
}

}  // namespace dtensor::ops
