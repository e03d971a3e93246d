// Elementwise kernels of two operands, with broadcasting from the right: dims are equal, or one of
// them is 1 or absent (1 against 0 gives 0). Operands have one dtype, may be strided or empty;
// results are new and contiguous. f16 and bf16 are computed in f32 and rounded once. ArgumentError
// for operands of two dtypes, a dtype that the op does not take, and shapes that do not broadcast.

#pragma once

#include <cstdint>

#include "dtensor/ops/cpu/block_map.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

enum class BinaryOp : uint8_t {
  // Integers too (they wrap).
  kAdd,
  kSub,
  kMul,
  kMaximum,  // NaN where one of them is
  kMinimum,
  kRemainder,  // a - b floor(a / b): has b's sign; ArgumentError for an integer b of 0
  // Floating dtypes.
  kDiv,
  kPow,
  kAtan2,
  // To bool, of any dtype; false where one of them is NaN, but kNe.
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  // To bool: of whether they are 0.
  kAnd,
  kOr,
  kXor,
};
inline constexpr size_t kBinaryOps = static_cast<size_t>(BinaryOp::kXor) + 1;

struct BinaryInfo {
  const char* name;
  bool to_bool;
};
const BinaryInfo& info_of(BinaryOp op);
void check_dtype(BinaryOp op, DType dtype);  // ArgumentError where the op does not take it

// The common shape of a and b; of several.
Shape broadcast_shape(const Shape& a, const Shape& b);

Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b);
// The second operand a number, rounded to the type computed in.
Tensor binary(BinaryOp op, const Tensor& a, double b);
Tensor binary(BinaryOp op, double a, const Tensor& b);

// What other kernels are written with.
inline Tensor add(const Tensor& a, const Tensor& b) { return binary(BinaryOp::kAdd, a, b); }
inline Tensor sub(const Tensor& a, const Tensor& b) { return binary(BinaryOp::kSub, a, b); }
inline Tensor mul(const Tensor& a, const Tensor& b) { return binary(BinaryOp::kMul, a, b); }
inline Tensor scale(const Tensor& x, double factor) { return binary(BinaryOp::kMul, x, factor); }

// g times the slope in a or in b, of the common shape, for those that are not linear: kMaximum and
// kMinimum (shared in halves where a = b), kPow, kAtan2 (0 at the origin), kRemainder, and kDiv in
// b. a or b may be a scalar of the type computed in: a number that g's dtype would round.
enum class Side : uint8_t { kA, kB };
Tensor binary_backward(BinaryOp op, Side side, const Tensor& g, const Tensor& a, const Tensor& b);

// a where `condition` is not 0, else b. condition is of any dtype, usually bool.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

}  // namespace dtensor::cpu
