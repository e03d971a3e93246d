// Embedding: rows of a table by id.

#pragma once

#include <cstdint>
#include <optional>

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// table [v,h], ids [...] of int64 in [0, v) -> [...,h].
//   rule  vh,...->...h: a cut v gives P(sum), each rank adding the rows that it holds. Ids are
//         global, never compared with a local index. Linear in the table.
struct EmbeddingOptions {
  std::optional<int64_t> padding_id = {};  // its row gets no gradient; a global id, as all are
};
DTensor embedding(const DTensor& table, const DTensor& ids, const EmbeddingOptions& options = {},
                  CallSite site = CallSite::here());

}  // namespace dtensor
