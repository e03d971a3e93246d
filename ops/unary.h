// Elementwise ops of one operand. Those that are not linear have no row for P(sum). Floating
// dtypes; neg, abs, sign, square, relu and clamp take integers too, logical_not anything.

#pragma once

#include <optional>

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

DTensor neg(const DTensor& a, CallSite site = CallSite::here());  // linear
DTensor abs(const DTensor& a, CallSite site = CallSite::here());  // slope 0 at 0
DTensor square(const DTensor& a, CallSite site = CallSite::here());
DTensor exp(const DTensor& a, CallSite site = CallSite::here());
DTensor expm1(const DTensor& a, CallSite site = CallSite::here());  // exp(a) - 1
DTensor log(const DTensor& a, CallSite site = CallSite::here());
DTensor log1p(const DTensor& a, CallSite site = CallSite::here());  // log(1 + a)
DTensor log2(const DTensor& a, CallSite site = CallSite::here());
DTensor sqrt(const DTensor& a, CallSite site = CallSite::here());
DTensor rsqrt(const DTensor& a, CallSite site = CallSite::here());  // 1 / sqrt(a)
DTensor reciprocal(const DTensor& a, CallSite site = CallSite::here());
DTensor sin(const DTensor& a, CallSite site = CallSite::here());
DTensor cos(const DTensor& a, CallSite site = CallSite::here());
DTensor tan(const DTensor& a, CallSite site = CallSite::here());
DTensor atan(const DTensor& a, CallSite site = CallSite::here());
DTensor tanh(const DTensor& a, CallSite site = CallSite::here());
DTensor sigmoid(const DTensor& a, CallSite site = CallSite::here());
DTensor erf(const DTensor& a, CallSite site = CallSite::here());
DTensor relu(const DTensor& a, CallSite site = CallSite::here());  // NaN stays
DTensor silu(const DTensor& a, CallSite site = CallSite::here());  // a sigmoid(a)
DTensor leaky_relu(const DTensor& a, double slope = 0.01, CallSite site = CallSite::here());
// a, or alpha (exp(a) - 1) where a < 0.
DTensor elu(const DTensor& a, double alpha = 1.0, CallSite site = CallSite::here());
// log(1 + exp(beta a)) / beta.
DTensor softplus(const DTensor& a, double beta = 1.0, CallSite site = CallSite::here());

// a Phi(a), Phi the standard normal distribution's; or its approximation by tanh (Hendrycks and
// Gimpel, "Gaussian error linear units", 2016).
enum class GeluForm { kErf, kTanh };
DTensor gelu(const DTensor& a, GeluForm form = GeluForm::kErf, CallSite site = CallSite::here());

// The gradient is that of a inside the range and at its ends, 0 outside. NaN stays.
struct ClampOptions {
  std::optional<double> min = {};
  std::optional<double> max = {};
};
DTensor clamp(const DTensor& a, const ClampOptions& range, CallSite site = CallSite::here());

// Constant between jumps: no gradient is recorded.
DTensor sign(const DTensor& a, CallSite site = CallSite::here());
DTensor floor(const DTensor& a, CallSite site = CallSite::here());
DTensor ceil(const DTensor& a, CallSite site = CallSite::here());
DTensor round(const DTensor& a, CallSite site = CallSite::here());  // halves to even
DTensor trunc(const DTensor& a, CallSite site = CallSite::here());

// Of dtype bool.
DTensor isnan(const DTensor& a, CallSite site = CallSite::here());
DTensor isfinite(const DTensor& a, CallSite site = CallSite::here());
DTensor logical_not(const DTensor& a, CallSite site = CallSite::here());  // is it 0?

}  // namespace dtensor
