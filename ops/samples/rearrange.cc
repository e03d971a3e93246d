#include "dtensor/ops/ops.h"
#include "dtensor/ops/samples/samples.h"

namespace dtensor::ops {

using In = SampleInputs;

std::vector<OpEntry> rearrange_samples() {
  return {
      {"cat", "", {{{4, 3}}, {{4, 2}}}, [](In x) { return cat(x, 1); }},
      {"cat",
       "equal",
       {{{4, 2}}, {{4, 2}}},
       [](In x) {
         return cat({x[1], x[0]}, -1);
       }},
      {"stack", "", {{{4, 3}}, {{4, 3}}}, [](In x) { return stack(x, 1); }},
      {"repeat",
       "",
       {{{4, 3}}},
       [](In x) {
         return repeat(x[0], Shape{2, 1, 3});
       }},
      {"repeat_interleave", "", {{{4, 3}}}, [](In x) { return repeat_interleave(x[0], 2, 0); }},
      {"pad", "", {{{4, 3}}}, [](In x) { return pad(x[0], 1, {.before = 2, .after = 1}); }},
      {"pad", "value", {{{4, 3}}}, [](In x) { return pad(x[0], 1, {.after = 2, .value = 0.5}); }},
      {"roll", "", {{{4, 5}}}, [](In x) { return roll(x[0], 2, 1); }},
      {"flip", "", {{{4, 5}}}, [](In x) { return flip(x[0], 1); }},
      {"diagonal", "", {{{3, 4, 5}}}, [](In x) { return diagonal(x[0], {.offset = 1}); }},
      {"tril", "", {{{2, 5, 4}}}, [](In x) { return tril(x[0], 1); }},
      {"triu", "", {{{4, 5}}}, [](In x) { return triu(x[0]); }},
  };
}

}  // namespace dtensor::ops
