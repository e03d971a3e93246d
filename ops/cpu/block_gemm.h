// c = alpha op(a) op(b) + beta c on row-major blocks of memory, on the calling thread: what the
// products and attention are made of. op transposes where asked; pitches are of the rows as they
// are stored. beta = 0 does not read c. Empty blocks are legal; with k = 0, c becomes beta c.

#pragma once

#include "dtensor/base/dtype.h"
#include "dtensor/ops/cpu/block.h"

namespace dtensor::cpu {

// f32 by oneDNN, but for few multiplications, and for one row by the rows of a transposed b.
void block_gemm(GemmSize size, const Block<float>& a, const Block<float>& b,
                const OutBlock<float>& c, GemmScale<float> scale = {});
// f64 by an own product (gemm_f64.h).
void block_gemm(GemmSize size, const Block<double>& a, const Block<double>& b,
                const OutBlock<double>& c, GemmScale<double> scale = {});
// bf16 by oneDNN (one row as in f32), accumulated in f32 and rounded once; or
// c += op(a) op(b) in f32.
void block_gemm(GemmSize size, const Block<BFloat16>& a, const Block<BFloat16>& b,
                const OutBlock<BFloat16>& c);
void block_gemm_add(GemmSize size, const Block<BFloat16>& a, const Block<BFloat16>& b,
                    const OutBlock<float>& c);

}  // namespace dtensor::cpu
