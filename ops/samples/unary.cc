#include "dtensor/ops/ops.h"
#include "dtensor/ops/samples/samples.h"

namespace dtensor::ops {

using In = SampleInputs;

std::vector<OpEntry> unary_samples() {
  std::vector<OpEntry> all;
  const auto unary = [&all](const char* name, DTensor (*f)(const DTensor&)) {
    all.push_back({name, "", {{{5, 4}}}, [f](In x) { return f(x[0]); }});
  };
  unary("scale", [](const DTensor& a) { return mul(a, -3.0); });
  unary("neg", [](const DTensor& a) { return neg(a); });
  unary("exp", [](const DTensor& a) { return exp(a); });
  unary("relu", [](const DTensor& a) { return relu(a); });
  unary("silu", [](const DTensor& a) { return silu(a); });
  unary("cast", [](const DTensor& a) { return cast(cast(a, DType::kFloat32), DType::kFloat64); });
  return all;
}

}  // namespace dtensor::ops
