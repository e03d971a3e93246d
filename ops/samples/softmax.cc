#include "dtensor/ops/ops.h"
#include "dtensor/ops/samples/samples.h"

namespace dtensor::ops {

using In = SampleInputs;

std::vector<OpEntry> softmax_samples() {
  std::vector<OpEntry> all;
  using Softmax = DTensor (*)(const DTensor&, const SoftmaxOptions&);
  const auto both = [&all](const char* name, Softmax f) {
    all.push_back({name, "", {{{3, 5}}}, [f](In x) { return f(x[0], {}); }});
    all.push_back({name, "dim", {{{3, 5, 2}}}, [f](In x) { return f(x[0], {.dim = 1}); }});
    all.push_back({name, "sharded_classes", {{{3, 5}}}, [f](In x) {
                     return f(x[0], {.sharded_classes = true});
                   }});
    all.push_back({name, "sharded_classes, dim", {{{3, 5, 2}}}, [f](In x) {
                     return f(x[0], {.dim = -2, .sharded_classes = true});
                   }});
  };
  both("softmax", [](const DTensor& x, const SoftmaxOptions& o) { return softmax(x, o); });
  both("log_softmax", [](const DTensor& x, const SoftmaxOptions& o) { return log_softmax(x, o); });
  return all;
}

}  // namespace dtensor::ops
