#include "dtensor/ops/ops.h"
#include "dtensor/ops/samples/samples.h"

namespace dtensor::ops {

using In = SampleInputs;

std::vector<OpEntry> image_samples() {
  return {
      {"conv2d", "", {{{3, 2, 4, 5}}, {{4, 2, 2, 3}}}, [](In x) { return conv2d(x[0], x[1]); }},
      {"conv2d",
       "bias, stride, padding, dilation",
       {{{2, 2, 5, 4}}, {{3, 2, 2, 2}}, {{3}}},
       [](In x) {
         return conv2d(x[0], x[1], x[2], {.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}});
       }},
      {"conv2d",
       "groups",
       {{{2, 4, 3, 3}}, {{4, 2, 2, 2}}},
       [](In x) {
         return conv2d(x[0], x[1], {}, {.padding = {1, 1}, .groups = 2});
       }},
      {"max_pool2d",
       "",
       {{{3, 4, 5}}},
       [](In x) {
         return max_pool2d(x[0], {.size = {2, 2}, .stride = {{1, 2}}});
       }},
      {"avg_pool2d",
       "",
       {{{3, 4, 5}}},
       [](In x) {
         return avg_pool2d(x[0], {.size = {2, 3}, .padding = {1, 1}});
       }},
  };
}

}  // namespace dtensor::ops
