#include <array>

#include "dtensor/ops/ops.h"
#include "dtensor/ops/samples/samples.h"

namespace dtensor::ops {

using In = SampleInputs;

std::vector<OpEntry> reduction_samples() {
  std::vector<OpEntry> all;
  using Reduce = DTensor (*)(const DTensor&, std::span<const int>);
  const auto reduction = [&all](const char* name, Reduce f) {
    all.push_back({name, "", {{{4, 3, 5}}}, [f](In x) { return f(x[0], {}); }});
    all.push_back({name, "dims", {{{4, 3, 5}}}, [f](In x) {
                     const std::array<int, 2> dims = {0, -1};
                     return f(x[0], std::span<const int>(dims));
                   }});
  };
  reduction("sum", [](const DTensor& a, std::span<const int> d) { return sum(a, d); });
  reduction("mean", [](const DTensor& a, std::span<const int> d) { return mean(a, d); });
  reduction("amax", [](const DTensor& a, std::span<const int> d) { return amax(a, d); });
  reduction("amin", [](const DTensor& a, std::span<const int> d) { return amin(a, d); });
  return all;
}

}  // namespace dtensor::ops
