#include "dtensor/ops/ops.h"
#include "dtensor/ops/samples/samples.h"

namespace dtensor::ops {

using In = SampleInputs;

std::vector<OpEntry> product_samples() {
  return {
      {"matmul", "", {{{6, 4}}, {{4, 3}}}, [](In x) { return matmul(x[0], x[1]); }},
      {"matmul", "batched", {{{3, 4, 2}}, {{3, 2, 5}}}, [](In x) { return matmul(x[0], x[1]); }},
      {"matmul",
       "broadcast",
       {{{3, 1, 4, 2}}, {{5, 2, 3}}},
       [](In x) { return matmul(x[0], x[1]); }},
      {"matmul", "of rows", {{{2, 4, 3}}, {{3, 5}}}, [](In x) { return matmul(x[0], x[1]); }},
      {"matmul", "by a vector", {{{5, 4}}, {{4}}}, [](In x) { return matmul(x[0], x[1]); }},
      {"bmm", "", {{{3, 4, 2}}, {{3, 2, 5}}}, [](In x) { return bmm(x[0], x[1]); }},
      {"einsum",
       "",
       {{{4, 3, 2}}, {{3, 4, 5}}},
       [](In x) { return einsum("abk,bac->cba", x[0], x[1]); }},
      {"einsum",
       "sums of one",
       {{{4, 3}}, {{3, 5}}},
       [](In x) { return einsum("ik,kj->j", x[0], x[1]); }},
      {"outer", "", {{{4}}, {{3}}}, [](In x) { return outer(x[0], x[1]); }},
      {"dot", "", {{{5}}, {{5}}}, [](In x) { return dot(x[0], x[1]); }},
      {"linear", "", {{{2, 5, 4}}, {{6, 4}}}, [](In x) { return linear(x[0], x[1]); }},
      {"linear",
       "bias",
       {{{5, 4}}, {{6, 4}}, {{6}}},
       [](In x) { return linear(x[0], x[1], x[2]); }},
      {"addmm",
       "",
       {{{3}}, {{6, 4}}, {{4, 3}}},
       [](In x) { return addmm(x[0], x[1], x[2], {.alpha = 2.0, .beta = 0.5}); }},
      {"baddbmm",
       "",
       {{{3, 4, 5}}, {{3, 4, 2}}, {{3, 2, 5}}},
       [](In x) { return baddbmm(x[0], x[1], x[2]); }},
  };
}

}  // namespace dtensor::ops
