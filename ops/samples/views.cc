#include "dtensor/ops/ops.h"
#include "dtensor/ops/samples/samples.h"

namespace dtensor::ops {

using In = SampleInputs;

std::vector<OpEntry> view_samples() {
  return {
      {"transpose", "", {{{4, 3, 5}}}, [](In x) { return transpose(x[0], 0, 2); }},
      {"reshape",
       "join",
       {{{4, 3, 2}}},
       [](In x) {
         return reshape(x[0], {12, 2});
       }},
      {"reshape",
       "split",
       {{{12, 2}}},
       [](In x) {
         return reshape(x[0], {4, 3, 2});
       }},
      {"narrow", "", {{{4, 5}}}, [](In x) { return narrow(x[0], 1, 1, 3); }},
  };
}

}  // namespace dtensor::ops
