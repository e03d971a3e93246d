#include "dtensor/base/context.h"
#include "dtensor/base/philox.h"
#include "dtensor/ops/ops.h"
#include "dtensor/ops/samples/samples.h"

namespace dtensor::ops {

using In = SampleInputs;

namespace {

Tensor sample_vector(int64_t n, double first) {
  const Tensor v = Tensor::empty({n}, DType::kFloat64);
  for (int64_t i = 0; i < n; ++i) v.data<double>()[i] = first - 0.5 * static_cast<double>(i);
  return v;
}

}  // namespace

std::vector<OpEntry> norm_samples() {
  std::vector<OpEntry> all;
  for (const bool sharded : {false, true}) {
    const char* variant = sharded ? "sharded_dims" : "";
    all.push_back({"layer_norm", variant, {{{3, 5, 4}}, {{4}}, {{4}}}, [=](In x) {
                     return layer_norm(x[0], x[1], x[2], {.sharded_dims = sharded});
                   }});
    all.push_back({"rms_norm", variant, {{{3, 5, 4}}, {{4}}}, [=](In x) {
                     return rms_norm(x[0], x[1], {.eps = 1e-5, .sharded_dims = sharded});
                   }});
  }
  all.push_back({"layer_norm", "weight only", {{{3, 4}}, {{4}}}, [](In x) {
                   return layer_norm(x[0], x[1], DTensor());
                 }});
  all.push_back({"layer_norm", "plain", {{{3, 4}}}, [](In x) { return layer_norm(x[0]); }});
  // Weights that are not operands, of which there would be too many combinations.
  all.push_back({"group_norm", "", {{{3, 4, 2}}}, [](In x) {
                   const Tensor w = sample_vector(4, 1).to(x[0].dtype());
                   return group_norm(x[0], constant(w, x[0]), constant(w, x[0]), {.groups = 2});
                 }});
  // Every call draws the same zeros.
  all.push_back({"dropout", "", {{{5, 4}}}, [](In x) {
                   const ScopedSlot<Generator> generator(Generator{.seed = 3, .next_stream = 1});
                   return dropout(x[0], 0.4);
                 }});
  return all;
}

}  // namespace dtensor::ops
