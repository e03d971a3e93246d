#include "dtensor/ops/ops.h"
#include "dtensor/ops/samples/samples.h"

namespace dtensor::ops {

using In = SampleInputs;

std::vector<OpEntry> loss_samples() {
  std::vector<OpEntry> all;
  const auto cross = [&all](const char* variant, const CrossEntropyOptions& options) {
    all.push_back({"cross_entropy", variant, {{{4, 3, 6}}, {{4, 3}, 6, false}}, [options](In x) {
                     return cross_entropy(x[0], x[1], options);
                   }});
  };
  cross("", {});
  cross("sharded_classes, ignore_index", {.ignore_index = 2, .sharded_classes = true});
  cross("label_smoothing", {.label_smoothing = 0.1});
  cross("sharded_classes, label_smoothing", {.sharded_classes = true, .label_smoothing = 0.1});
  cross("sum", {.ignore_index = 2, .reduction = LossReduction::kSum});
  cross("sharded_classes, none", {.ignore_index = 2,
                                  .sharded_classes = true,
                                  .label_smoothing = 0.1,
                                  .reduction = LossReduction::kNone});
  const auto nll = [&all](const char* variant, const NllLossOptions& options) {
    all.push_back({"nll_loss", variant, {{{4, 3, 6}}, {{4, 3}, 6, false}}, [options](In x) {
                     return nll_loss(x[0], x[1], options);
                   }});
  };
  nll("", {});
  nll("ignore_index", {.ignore_index = 2});
  nll("none", {.ignore_index = 2, .reduction = LossReduction::kNone});
  all.push_back({"binary_cross_entropy_with_logits", "", {{{4, 3}}, {{4, 3}}}, [](In x) {
                   return binary_cross_entropy_with_logits(x[0], x[1]);
                 }});
  const auto squares = [&all](const char* variant, LossReduction reduction) {
    all.push_back({"mse_loss", variant, {{{4, 3}}, {{4, 3}}}, [reduction](In x) {
                     return mse_loss(x[0], x[1], reduction);
                   }});
  };
  squares("", LossReduction::kMean);
  squares("sum", LossReduction::kSum);
  squares("none", LossReduction::kNone);
  return all;
}

}  // namespace dtensor::ops
