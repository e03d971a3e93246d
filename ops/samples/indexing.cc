#include "dtensor/ops/ops.h"
#include "dtensor/ops/samples/samples.h"

namespace dtensor::ops {

using In = SampleInputs;

std::vector<OpEntry> indexing_samples() {
  return {
      {"embedding", "", {{{6, 4}}, {{3, 5}, 6, false}}, [](In x) { return embedding(x[0], x[1]); }},
      {"gather", "", {{{4, 5, 3}}, {{4, 6, 3}, 5}}, [](In x) { return gather(x[0], 1, x[1]); }},
      {"scatter_add",
       "",
       {{{4, 5}}, {{4, 6}, 5}, {{4, 6}}},
       [](In x) { return scatter_add(x[0], 1, x[1], x[2]); }},
      {"index_select",
       "",
       {{{4, 5, 3}}, {{6}, 5}},
       [](In x) { return index_select(x[0], 1, x[1]); }},
      {"index_add",
       "",
       {{{5, 3}}, {{6}, 5}, {{6, 3}}},
       [](In x) { return index_add(x[0], 0, x[1], x[2]); }},
      {"scatter",
       "",
       {{{4, 5}}, {{4, 6}, 5}, {{4, 6}}},
       [](In x) { return scatter(x[0], 1, x[1], x[2]); }},
      {"bincount", "", {{{4, 3}, 5}}, [](In x) { return bincount(x[0], 5); }},
      {"max_along", "", {{{4, 5}}}, [](In x) { return max_along(x[0], 1).values; }},
      {"min_along",
       "indices",
       {{{4, 5}}},
       [](In x) { return min_along(x[0], 0, KeepDims::kYes).indices; }},
      {"one_hot", "", {{{4, 3}, 5}}, [](In x) { return one_hot(x[0], 5); }},
      {"cumsum", "", {{{3, 4, 5}}}, [](In x) { return cumsum(x[0], 1); }},
      {"sort", "", {{{4, 5}}}, [](In x) { return sort(x[0]).values; }},
      {"sort",
       "descending",
       {{{4, 3, 5}}},
       [](In x) { return sort(x[0], {.dim = 1, .descending = true}).values; }},
      {"argsort", "", {{{4, 5}}}, [](In x) { return argsort(x[0]); }},
      {"topk", "", {{{4, 5}}}, [](In x) { return topk(x[0], 2).values; }},
      {"topk", "indices", {{{5, 4}}}, [](In x) { return topk(x[0], 3, 0).indices; }},
  };
}

}  // namespace dtensor::ops
