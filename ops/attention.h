// Attention over head groups.

#pragma once

#include <cstdint>

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

struct AttentionOptions {
  bool causal = true;
  int64_t query_offset = 0;  // how many keys stand before the first query
  double scale = 0.0;        // of the scores; 0: 1 / sqrt(d)
  // Broadcast from the right to [b,g,r,t,s]: bool, true where a query sees a key; or of q's dtype,
  // added to the scaled scores. Beside `causal`: both hide. No gradient.
  DTensor mask = {};
};

// q [b,t,g,r,d], k and v [b,s,g,d] -> [b,t,g,r,d]: softmax(q kᵀ / sqrt(d)) v per head group g of r
// query heads. Causal: query i sees keys up to i + query_offset, i the global index. A query that
// sees no key gives 0. No matrix of queries times keys is kept.
//   rule  btgrd,bsgd,bsgd->btgrd: s and d may not be cut (key shards would need messages inside).
//         Linear in v. With t cut the gradients of k and v are P(sum). A mask is cut as q is.
DTensor attention(const DTensor& q, const DTensor& k, const DTensor& v,
                  const AttentionOptions& options = {}, CallSite site = CallSite::here());

}  // namespace dtensor
