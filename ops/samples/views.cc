#include "dtensor/ops/ops.h"
#include "dtensor/ops/samples/samples.h"

namespace dtensor::ops {

using In = SampleInputs;

std::vector<OpEntry> view_samples() {
  return {
      {"permute",
       "",
       {{{4, 3, 5}}},
       [](In x) {
         return permute(x[0], {2, 0, 1});
       }},
      {"transpose", "", {{{4, 3, 5}}}, [](In x) { return transpose(x[0], 0, 2); }},
      {"reshape",
       "join",
       {{{4, 3, 2}}},
       [](In x) {
         return reshape(x[0], Shape{12, 2});
       }},
      {"reshape",
       "split",
       {{{12, 2}}},
       [](In x) {
         return reshape(x[0], Shape{4, 3, 2});
       }},
      {"view",
       "",
       {{{12, 2}}},
       [](In x) {
         return view(x[0], Shape{4, 3, 2});
       }},
      {"flatten", "", {{{2, 4, 3}}}, [](In x) { return flatten(x[0], 1); }},
      {"unflatten",
       "",
       {{{2, 12}}},
       [](In x) {
         return unflatten(x[0], 1, Shape{4, -1});
       }},
      {"squeeze", "", {{{4, 1, 3}}}, [](In x) { return squeeze(x[0], 1); }},
      {"unsqueeze", "", {{{4, 3}}}, [](In x) { return unsqueeze(x[0], 1); }},
      {"expand",
       "",
       {{{4, 1, 3}}},
       [](In x) {
         return expand(x[0], Shape{2, 4, 5, -1});
       }},
      {"narrow", "", {{{4, 5}}}, [](In x) { return narrow(x[0], 1, 1, 3); }},
      {"narrow", "middle", {{{8, 3}}}, [](In x) { return narrow(x[0], 0, 2, 4); }},
      {"slice", "", {{{8, 3}}}, [](In x) { return slice(x[0], 0, {.begin = 1, .step = 2}); }},
      {"select", "", {{{4, 3, 2}}}, [](In x) { return select(x[0], 1, -1); }},
      {"split",
       "",
       {{{3, 6}}},
       [](In x) {
         return split(x[0], {1, 3, 2}, 1)[1];
       }},
      {"split",
       "two of its parts",
       {{{3, 5}}},
       [](In x) {
         const std::vector<DTensor> parts = split(x[0], {2, 1, 2}, 1);
         return add(parts[0], parts[2]);
       }},
      {"chunk", "", {{{3, 5}}}, [](In x) { return chunk(x[0], 3, 1)[2]; }},
      {"unbind",
       "",
       {{{3, 4}}},
       [](In x) {
         const std::vector<DTensor> rows = unbind(x[0]);
         if (rows.size() < 3) throw ArgumentError("unbind: the sample wants three rows");
         return sub(rows[2], rows[0]);
       }},
  };
}

}  // namespace dtensor::ops
