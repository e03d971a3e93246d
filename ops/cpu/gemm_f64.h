// The product of f64 blocks (oneDNN has none): packed panels of both operands and a kernel that
// keeps its sums in registers (Goto and van de Geijn, "Anatomy of high-performance matrix
// multiplication", ACM TOMS 34, 2008).

#pragma once

#include "dtensor/ops/cpu/block.h"

namespace dtensor::cpu::internal {

// c = alpha op(a) op(b) + beta c, of no empty dim, on the calling thread. A sum over k goes in
// blocks of a fixed length, each in the order of k.
void gemm_f64(GemmSize size, const Block<double>& a, const Block<double>& b,
              const OutBlock<double>& c, GemmScale<double> scale);

}  // namespace dtensor::cpu::internal
