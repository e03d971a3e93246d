#include "dtensor/ops/ops.h"
#include "dtensor/ops/samples/samples.h"

namespace dtensor::ops {

using In = SampleInputs;

std::vector<OpEntry> attention_samples() {
  const std::vector<SampleOperand> heads = {{{2, 5, 3, 2, 4}}, {{2, 5, 3, 4}}, {{2, 5, 3, 4}}};
  const std::vector<SampleOperand> whole = {{{2, 3, 2, 2, 2}}, {{2, 4, 2, 2}}, {{2, 4, 2, 2}}};
  const std::vector<SampleOperand> added = {
      {{2, 3, 2, 1, 2}}, {{2, 4, 2, 2}}, {{2, 4, 2, 2}}, {{2, 1, 1, 4}, 0, false}};
  return {
      {"rope",
       "",
       {{{2, 5, 3, 4}}, {{5, 4}, 0, false}, {{5, 4}, 0, false}},
       [](In x) { return rope(x[0], x[1], x[2]); }},
      {"attention", "", heads, [](In x) { return attention(x[0], x[1], x[2]); }},
      {"attention", "whole", whole,
       [](In x) { return attention(x[0], x[1], x[2], {.causal = false}); }},
      {"attention", "additive mask", added,
       [](In x) {
         return attention(x[0], x[1], x[2], {.query_offset = 1, .scale = 0.7, .mask = x[3]});
       }},
  };
}

}  // namespace dtensor::ops
