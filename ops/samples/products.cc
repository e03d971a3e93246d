#include "dtensor/ops/ops.h"
#include "dtensor/ops/samples/samples.h"

namespace dtensor::ops {

using In = SampleInputs;

std::vector<OpEntry> product_samples() {
  return {
      {"matmul", "", {{{6, 4}}, {{4, 3}}}, [](In x) { return matmul(x[0], x[1]); }},
      {"matmul", "batched", {{{3, 4, 2}}, {{3, 2, 5}}}, [](In x) { return matmul(x[0], x[1]); }},
      {"linear", "", {{{2, 5, 4}}, {{6, 4}}}, [](In x) { return linear(x[0], x[1]); }},
      {"linear",
       "bias",
       {{{5, 4}}, {{6, 4}}, {{6}}},
       [](In x) { return linear(x[0], x[1], x[2]); }},
  };
}

}  // namespace dtensor::ops
