#include "dtensor/ops/ops.h"
#include "dtensor/ops/samples/samples.h"

namespace dtensor::ops {

using In = SampleInputs;

std::vector<OpEntry> binary_samples() {
  std::vector<OpEntry> all;
  const auto binary = [&all](const char* name, DTensor (*f)(const DTensor&, const DTensor&)) {
    const auto call = [f](In x) { return f(x[0], x[1]); };
    all.push_back({name, "", {{{4, 3}}, {{4, 3}}}, call});
    all.push_back({name, "broadcast", {{{5, 4, 3}}, {{4, 1}}}, call});
    all.push_back({name, "scalar", {{{5}}, {{}}}, call});
  };
  binary("add", [](const DTensor& a, const DTensor& b) { return add(a, b); });
  binary("sub", [](const DTensor& a, const DTensor& b) { return sub(a, b); });
  binary("mul", [](const DTensor& a, const DTensor& b) { return mul(a, b); });
  all.push_back({"add", "number", {{{5, 4}}}, [](In x) { return add(x[0], 10.0); }});
  all.push_back({"silu_mul", "", {{{5, 4}}, {{5, 4}}}, [](In x) { return silu_mul(x[0], x[1]); }});
  return all;
}

}  // namespace dtensor::ops
