// The backward pass of attention, tile by tile: probabilities are computed again from lse.
//   p = exp(scale q kᵀ - lse),  dv = pᵀ g,  ds = p (g vᵀ - sum(g out)) scale,  dq = ds k,  dk = dsᵀ
//   q
// (Dao et al., "FlashAttention", NeurIPS 2022, section 3.1 and appendix B.)

#pragma once

#include "dtensor/ops/cpu/attention_heads.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu::internal {

struct AttentionBackwardInputs {
  const Tensor& grad;
  const Tensor& q;
  const Tensor& k;
  const Tensor& v;
  const Tensor& out;
  const Tensor& lse;
  const Tensor& mask;
};

struct AttentionSums {
  const Tensor& dq;
  const Tensor& dk;
  const Tensor& dv;
};

// Adds to `sums`: contiguous zeros of type A (float, double), of the shapes of q, k, v. One thread
// does one head group, so that what its heads add to dk and dv has one order.
template <class A>
void attention_backward_into(const AttentionSizes& sizes, KeyLimit limit,
                             const AttentionBackwardInputs& inputs, const AttentionSums& sums);

}  // namespace dtensor::cpu::internal
