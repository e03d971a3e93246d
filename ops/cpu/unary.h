// Elementwise kernels of one operand, as a table. Operands may be strided or empty, results are new
// and contiguous. f16 and bf16 are computed in f32 and rounded once. ArgumentError for a dtype that
// the op does not take.

#pragma once

#include <cstdint>
#include <string_view>

#include "dtensor/ops/cpu/block_map.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

enum class UnaryOp : uint8_t {
  // Integers too (they wrap).
  kNeg,
  kAbs,
  kSign,
  kSquare,
  kRelu,
  kClamp,  // to [numbers[0], numbers[1]]; NaN stays
  // Floating dtypes.
  kExp,  // f32: at most 1 ulp off in the normal range; inf, 0 and NaN as in C
  kExpm1,
  kLog,
  kLog1p,
  kLog2,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kSin,
  kCos,
  kTan,
  kAtan,
  kTanh,
  kSigmoid,
  kErf,
  kLeakyRelu,  // x, or numbers[0] x where x < 0
  kElu,        // x, or numbers[0] (exp(x) - 1) where x < 0
  kSilu,       // x / (1 + exp(-x))
  kGelu,       // x Phi(x), Phi the normal distribution's (Hendrycks and Gimpel, 2016)
  kGeluTanh,   // the same by tanh(sqrt(2/pi) (x + 0.044715 x^3))
  kSoftplus,   // log(1 + exp(b x)) / b, b = numbers[0]
  kFloor,
  kCeil,
  kRound,  // to even
  kTrunc,
  // To bool.
  kIsNan,
  kIsFinite,
  kLogicalNot,  // of any dtype: is it 0?
};
inline constexpr size_t kUnaryOps = static_cast<size_t>(UnaryOp::kLogicalNot) + 1;

// What a gradient is computed from.
enum class UnarySaves : uint8_t {
  kNoGradient,  // constant between jumps, or not a number
  kNothing,     // linear: the op itself is its adjoint
  kInput,
  kOutput,
};

struct UnaryInfo {
  const char* name;
  UnarySaves saves;
  bool to_bool;
};
const UnaryInfo& info_of(UnaryOp op);
void check_dtype(UnaryOp op, DType dtype);  // ArgumentError where the op does not take it

Tensor unary(UnaryOp op, const Tensor& x, const Numbers& numbers = {});
// What other kernels are written with.
inline Tensor exp(const Tensor& x) { return unary(UnaryOp::kExp, x); }
inline Tensor log(const Tensor& x) { return unary(UnaryOp::kLog, x); }

// g times the slope, from the input or the output as `info_of(op).saves` says; not for linear ops.
Tensor unary_backward(UnaryOp op, const Tensor& g, const Tensor& saved,
                      const Numbers& numbers = {});

}  // namespace dtensor::cpu
