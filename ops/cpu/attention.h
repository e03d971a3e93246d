// Attention over head groups on local Tensors: softmax(scale q kᵀ) v, tiled, with a running maximum
// (Dao et al., "FlashAttention", NeurIPS 2022): no matrix of queries times keys is kept.
//   q [b,t,g,r,d]: g groups of r query heads    k, v [b,s,g,d]: one key/value head a group
// Operands may be strided or empty. Results are new and contiguous. Dtypes f32, f64, and bf16
// and f16 (computed in f32, rounded once). ArgumentError where shapes or dtypes do not fit.
// Causal: local query row i sees the local keys j <= i + query_offset. With the keys whole,
// query_offset is the global position of local query row 0; with local keys that begin at a global
// position p, it is that less p, and may be negative. A row that sees no key (also where s = 0)
// gives output 0, lse -inf and no gradient.

#pragma once

#include <cstdint>

#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

struct AttentionParams {
  bool causal = true;
  int64_t query_offset = 0;
  double scale = 0.0;  // 0: 1 / sqrt(d)
  // [b,g,r,t,s], dims repeated by stride 0: bool, true where a query sees a key; or of q's dtype,
  // added to the scaled scores. Undefined: none.
  Tensor mask = {};
};

struct AttentionResult {
  Tensor out;  // [b,t,g,r,d], q's dtype
  Tensor lse;  // [b,t,g,r]: log of the sum of exp(scale q kᵀ); f32, or f64 where q is f64
};
AttentionResult attention_forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                  const AttentionParams& params);

// For the gradient `grad` of out; `out` and `lse` as forward gave them.
struct AttentionGrads {
  Tensor dq;  // q's shape
  Tensor dk;  // k's shape
  Tensor dv;  // v's shape
};
AttentionGrads attention_backward(const Tensor& grad, const Tensor& q, const Tensor& k,
                                  const Tensor& v, const AttentionResult& forward,
                                  const AttentionParams& params);

}  // namespace dtensor::cpu
