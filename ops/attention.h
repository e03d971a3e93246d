// Attention over head groups.

#pragma once

#include <cstdint>

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

struct AttentionOptions {
  bool causal = true;
  int64_t query_offset = 0;  // how many keys stand before the first query
};

// q [b,t,g,r,d], k and v [b,s,g,d] -> [b,t,g,r,d]: softmax(q kᵀ / sqrt(d)) v per head group g of r
// query heads. Causal: query i sees keys up to i + query_offset, i the global index.
//   rule  btgrd,bsgd,bsgd->btgrd: s and d may not be cut (key shards would need messages inside).
//         Linear in v. With t cut the gradients of k and v are P(sum).
DTensor attention(const DTensor& q, const DTensor& k, const DTensor& v,
                  const AttentionOptions& options = {}, CallSite site = CallSite::here());

}  // namespace dtensor
