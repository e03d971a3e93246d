#include "dtensor/ops/ops.h"
#include "dtensor/ops/samples/samples.h"

namespace dtensor::ops {

using In = SampleInputs;

std::vector<OpEntry> binary_samples() {
  std::vector<OpEntry> all;
  using Binary = DTensor (*)(const DTensor&, const DTensor&);
  const auto binary = [&all](const char* name, Binary f, bool positive = false) {
    const auto call = [f](In x) { return f(x[0], x[1]); };
    const auto operand = [positive](const Shape& shape) {
      return SampleOperand{.shape = shape, .positive = positive};
    };
    all.push_back({name, "", {operand({4, 3}), operand({4, 3})}, call});
    all.push_back({name, "broadcast", {operand({5, 4, 3}), operand({4, 1})}, call});
    all.push_back({name, "scalar", {operand({5}), operand({})}, call});
  };
  const auto number = [&all](const char* name, DTensor (*f)(const DTensor&)) {
    all.push_back({name, "number", {{{5, 4}}}, [f](In x) { return f(x[0]); }});
  };
  binary("add", [](const DTensor& a, const DTensor& b) { return add(a, b); });
  number("add", [](const DTensor& a) { return add(a, 10.0); });
  binary("sub", [](const DTensor& a, const DTensor& b) { return sub(a, b); });
  number("sub", [](const DTensor& a) { return sub(10.0, a); });
  binary("lerp", [](const DTensor& a, const DTensor& b) { return lerp(a, b, 0.25); });
  binary("mul", [](const DTensor& a, const DTensor& b) { return mul(a, b); });
  binary("div", [](const DTensor& a, const DTensor& b) { return div(a, b); });
  number("div", [](const DTensor& a) { return div(a, 3.0); });
  number("div_number", [](const DTensor& a) { return div(3.0, a); });
  binary(
      "pow", [](const DTensor& a, const DTensor& b) { return pow(a, b); }, true);
  number("pow", [](const DTensor& a) { return pow(a, 3.0); });
  number("pow_number", [](const DTensor& a) { return pow(3.0, a); });
  binary("atan2", [](const DTensor& a, const DTensor& b) { return atan2(a, b); });
  binary("maximum", [](const DTensor& a, const DTensor& b) { return maximum(a, b); });
  number("maximum", [](const DTensor& a) { return maximum(a, 0.5); });
  binary("minimum", [](const DTensor& a, const DTensor& b) { return minimum(a, b); });
  number("minimum", [](const DTensor& a) { return minimum(a, 0.5); });
  binary("remainder", [](const DTensor& a, const DTensor& b) { return remainder(a, b); });
  number("remainder", [](const DTensor& a) { return remainder(a, 0.4); });
  all.push_back({"silu_mul", "", {{{5, 4}}, {{5, 4}}}, [](In x) { return silu_mul(x[0], x[1]); }});

  all.push_back({"addcmul", "", {{{4, 3}}, {{4, 3}}, {{3}}}, [](In x) {
                   return addcmul(x[0], x[1], x[2], 0.5);
                 }});

  const SampleOperand mask{.shape = {4, 3}, .below = 2};
  all.push_back(
      {"where", "", {mask, {{4, 3}}, {{4, 3}}}, [](In x) { return where(x[0], x[1], x[2]); }});
  all.push_back({"where", "broadcast", {{{6}, 2}, {{4, 6}}, {{4, 1}}}, [](In x) {
                   return where(x[0], x[1], x[2]);
                 }});
  all.push_back(
      {"masked_fill", "", {{{4, 3}}, mask}, [](In x) { return masked_fill(x[0], x[1], 7.0); }});
  return all;
}

}  // namespace dtensor::ops
