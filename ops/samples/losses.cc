#include "dtensor/ops/ops.h"
#include "dtensor/ops/samples/samples.h"

namespace dtensor::ops {

using In = SampleInputs;

std::vector<OpEntry> loss_samples() {
  std::vector<OpEntry> all;
  const auto loss = [&all](const char* variant, const CrossEntropyOptions& options) {
    all.push_back({"cross_entropy", variant, {{{4, 3, 6}}, {{4, 3}, 6, false}}, [options](In x) {
                     return cross_entropy(x[0], x[1], options);
                   }});
  };
  loss("", {});
  loss("sharded_classes, ignore_index", {.ignore_index = 2, .sharded_classes = true});
  loss("label_smoothing", {.label_smoothing = 0.1});
  loss("sharded_classes, label_smoothing", {.sharded_classes = true, .label_smoothing = 0.1});
  return all;
}

}  // namespace dtensor::ops
