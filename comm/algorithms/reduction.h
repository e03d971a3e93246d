// Element-wise reduction of buffers, in a fixed order.

#pragma once

#include <cstdint>
#include <span>

#include "dtensor/comm/types.h"

namespace dtensor::comm {

// out[i] = operands[0][i] op operands[1][i] op ..., from left to right, starting from the first
// operand (so that -0.0 survives a sum). `out` may be exactly one of the operands; at least one.
// 16-bit types accumulate in float32 and are rounded once; integers wrap; min and max give NaN
// where an operand is NaN. kAvg divides by the number of operands at the end.
void reduce_into(void* out, std::span<const void* const> operands, int64_t count, DType dtype,
                 ReduceOp op);

}  // namespace dtensor::comm
