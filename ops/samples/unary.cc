#include "dtensor/ops/ops.h"
#include "dtensor/ops/samples/samples.h"

namespace dtensor::ops {

using In = SampleInputs;

std::vector<OpEntry> unary_samples() {
  std::vector<OpEntry> all;
  const auto unary = [&all](const char* name, DTensor (*f)(const DTensor&)) {
    all.push_back({name, "", {{{5, 4}}}, [f](In x) { return f(x[0]); }});
  };
  const auto of_positive = [&all](const char* name, DTensor (*f)(const DTensor&)) {
    all.push_back({name, "", {{.shape = {5, 4}, .positive = true}}, [f](In x) { return f(x[0]); }});
  };
  unary("scale", [](const DTensor& a) { return mul(a, -3.0); });
  unary("neg", [](const DTensor& a) { return neg(a); });
  unary("exp", [](const DTensor& a) { return exp(a); });
  unary("relu", [](const DTensor& a) { return relu(a); });
  unary("silu", [](const DTensor& a) { return silu(a); });
  unary("abs", [](const DTensor& a) { return abs(a); });
  unary("square", [](const DTensor& a) { return square(a); });
  unary("expm1", [](const DTensor& a) { return expm1(a); });
  unary("reciprocal", [](const DTensor& a) { return reciprocal(a); });
  unary("sin", [](const DTensor& a) { return sin(a); });
  unary("cos", [](const DTensor& a) { return cos(a); });
  unary("tan", [](const DTensor& a) { return tan(a); });
  unary("atan", [](const DTensor& a) { return atan(a); });
  unary("tanh", [](const DTensor& a) { return tanh(a); });
  unary("sigmoid", [](const DTensor& a) { return sigmoid(a); });
  unary("erf", [](const DTensor& a) { return erf(a); });
  unary("sign", [](const DTensor& a) { return sign(a); });
  unary("floor", [](const DTensor& a) { return floor(a); });
  unary("ceil", [](const DTensor& a) { return ceil(a); });
  unary("round", [](const DTensor& a) { return round(a); });
  unary("trunc", [](const DTensor& a) { return trunc(a); });
  of_positive("log", [](const DTensor& a) { return log(a); });
  of_positive("log1p", [](const DTensor& a) { return log1p(a); });
  of_positive("log2", [](const DTensor& a) { return log2(a); });
  of_positive("sqrt", [](const DTensor& a) { return sqrt(a); });
  of_positive("rsqrt", [](const DTensor& a) { return rsqrt(a); });
  unary("leaky_relu", [](const DTensor& a) { return leaky_relu(a, 0.1); });
  unary("elu", [](const DTensor& a) { return elu(a, 0.7); });
  unary("softplus", [](const DTensor& a) { return softplus(a, 2.0); });
  unary("gelu", [](const DTensor& a) { return gelu(a); });
  unary("gelu_tanh", [](const DTensor& a) { return gelu(a, GeluForm::kTanh); });
  unary("clamp", [](const DTensor& a) { return clamp(a, {.min = -0.5, .max = 0.75}); });
  // Of both answers: the logarithm of a negative number is NaN.
  unary("isnan", [](const DTensor& a) { return isnan(log(a.detach())); });
  unary("isfinite", [](const DTensor& a) { return isfinite(log(a.detach())); });
  all.push_back({"logical_not", "", {{{5, 4}, 2}}, [](In x) { return logical_not(x[0]); }});
  unary("cast", [](const DTensor& a) { return cast(cast(a, DType::kFloat32), DType::kFloat64); });
  unary("cast_to_integer", [](const DTensor& a) { return cast(mul(a, 8.0), DType::kInt64); });
  return all;
}

}  // namespace dtensor::ops
